"""The gate.

Measures a base and the working tree together, launch by launch, and judges by a permutation test.

Question: is the head slower than the base?
Input: two trees (a revision or a directory, and the working tree) and arguments for pytest.
Output: a file of raw samples, and a verdict for every case and operation.

``flow`` is the flow on one page: ``trees`` copies the two trees; ``surveying`` finds the cases of
both sides (``listing``); ``rounds`` starts launches within a ``budget``; ``launcher`` starts a
process for each side and speaks with it (``messages``); ``report`` shows the verdict, ``page`` as
an HTML page.

In the process of a side, ``sides/worker`` is the program, with ``sides/session`` for the pytest
session, ``sides/turns`` for the turns of the two processes and ``sides/steps`` for the measurement.
Of the rest it loads ``words``, ``messages`` and ``listing``; only these processes import torch.

``statistics`` has the raw samples, the tests and the verdict. ``reproducers`` writes a script for
each operation that was found slower, from the calls that ``capture`` describes. ``commands`` has
``gate``, ``judge`` and ``bisect``, which runs gates for releases of a package until the first
slower one is known.
"""
