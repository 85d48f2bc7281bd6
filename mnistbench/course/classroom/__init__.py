"""What a class does with labs.

Predict, compare with what was measured, and make a training step faster for a score.
"""
