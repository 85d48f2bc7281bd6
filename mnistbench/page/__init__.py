"""``mnistbench report``, and the page of saved runs: cases, operations, curves, comparisons."""
