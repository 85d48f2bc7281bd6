"""The gate.

Measures a base and the working tree together, launch by launch, and judges by a permutation test.

Question: is the head slower than the base?
Input: two trees (a revision or a directory, and the working tree) and arguments for pytest.
Output: a file of raw samples, and a verdict for every case and operation.

The way from the command to the verdict, in the order of reading:

1. ``commands/gate`` calls ``flow``, the flow on one page, with its ``options``.
2. ``trees`` copies the two trees. ``surveying`` finds the cases of both sides, which ``listing``
   compares; ``launcher`` starts a process for each side and speaks with it (``messages``).
3. In the process of a side, ``sides/worker`` is the program and ``sides/survey`` its first job,
   which runs the tests of a ``sides/side`` in the pytest session of ``sides/session``; a test
   becomes a ``sides/case``.
4. ``rounds`` runs launches within a ``budget``. In their processes ``sides/steps`` measures in
   ``sides/turns``. Of the rest they load ``words``, ``messages`` and ``listing``; only these
   processes import torch.
5. ``statistics`` makes quantities of raw samples, ``verdict`` judges them, and ``report`` says it.

Beside the way:

- ``copies`` has the rules by which ``trees`` copies, and what the sides share nevertheless.
- ``reach`` finds the cases that the differences affect; the others are not measured.
- ``reproducers`` writes a script for each operation that was found slower.
- ``causes`` finds the functions that made a case slower or faster.
- ``page`` shows a verdict as an HTML page.
- ``environments`` installs the packages that a user gives one side alone.
- ``qualification`` measures the same code on both sides, to know what gates find on a machine; only
  ``commands`` knows it.
- ``commands`` also has ``judge`` and ``bisect``, which runs gates for releases of a package until
  the first slower one is known.
"""
