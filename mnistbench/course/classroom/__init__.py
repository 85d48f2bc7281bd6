"""What a class does with labs: make a training step faster, for a score."""
