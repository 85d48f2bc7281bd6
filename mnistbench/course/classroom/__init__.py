"""What a class does with labs.

Make a training step faster for a score, check a lab and hand it in; ``teacher`` grades.
"""
