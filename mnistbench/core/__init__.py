"""Types and helpers that all packages share.

The identity of a case (``params``), its saved ``record`` and its operations (``operation``);
declared ``options``; ``reading`` of JSON; ``errors``, ``units`` and ``files``; the ``machine`` and
``child`` processes.

Question: which objects do all other packages work with?
Input: plain values and parsed JSON.
Output: checked objects (``Params``, ``CaseRecord``), and numbers as text with a unit.

Nothing here imports another package of mnistbench, or torch.
"""
