"""What a teacher does with the submissions of a class.

``cohort`` reads, ranks and compares them, which ``merge_command`` shows; ``rerun_command`` measures
the best again.
"""
