"""What a class does with labs: predict, and compare with what was measured."""
