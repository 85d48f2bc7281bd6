"""``mnistbench report`` (``command``), and the page of saved runs.

``runs_page`` is the page: cases, operations, curves, comparisons. ``run_view`` has what it shows of
each run.
"""
