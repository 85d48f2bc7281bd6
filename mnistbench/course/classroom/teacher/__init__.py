"""What a teacher does with the submissions of a class: read, rank and compare them, measure the best again."""
