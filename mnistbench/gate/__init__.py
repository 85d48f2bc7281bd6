"""The gate.

Measures a base and the working tree together, launch by launch, and judges by a permutation test.

Question: is the head slower than the base?
Input: two trees (a revision or a directory, and the working tree) and arguments for pytest.
Output: a file of raw samples, and a verdict for every case and operation.

``flow`` is the flow: ``trees`` copies the two trees; ``launcher`` starts a process for each side;
``worker`` is its program, with ``side`` for the pytest session, ``turns`` for the turns of the two
processes and ``sides/steps`` for the measurement. ``statistics`` has what a launch returns and
derives the verdict. ``reproducers`` writes a script for each operation that was found slower, from
the calls that ``capture`` describes. ``bisection`` runs gates for releases of a package until the
first slower one is known.

``worker`` and the modules that it imports run in the processes of a launch; only they import torch.
"""
