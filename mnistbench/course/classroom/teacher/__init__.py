"""What a teacher does with the submissions of a class.

Read, rank and compare them, measure the best again.
"""
