"""``mnistbench gate --qualify``: what gates find on a machine.

``measurement`` asks the flow of a gate for trials of the same code on both sides;
``resampling`` draws gates from them, which are judged as real ones; ``result`` has what was found,
in a file that later gates read; ``report`` shows it.

Question: which slowdowns does a gate find on this machine?
Input: the working tree and arguments for pytest.
Output: a report, and a file with the result beside the raw samples.

Only ``commands`` imports this folder.
"""
