"""What a gate measures and writes: the samples from which each verdict is made.

``raw_samples`` has the file: its header with what the surveys have found, the trials, and the end,
which has the ``case_profile`` of each changed case. ``case_names`` are the names of cases in
reports.
"""
