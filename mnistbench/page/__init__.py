"""The HTML page of saved runs: cases, operations, curves, comparisons."""
