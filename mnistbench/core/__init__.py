"""Types and helpers that all packages share.

Errors, units, the identity of a case, and its saved record.

Question: which objects do all other packages work with?
Input: plain values and parsed JSON.
Output: checked objects (``Params``, ``CaseRecord``, ``Run``), and numbers as text with a unit.

Nothing here imports another package of mnistbench, or torch.
"""
