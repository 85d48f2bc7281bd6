"""The gate.

Measures a base and the working tree together, trial by trial, and judges by a permutation test.

Question: is the head slower than the base?
Input: two trees (a revision or a folder, and the working tree) and arguments for pytest.
Output: a file of raw samples, and a verdict for every case and operation.

``commands/gate`` calls ``flow`` with its ``options``. The five chapters are folders:

1. ``survey``: ``surveying.survey_sides`` finds the cases of both sides, and those that the
   differences affect (``reach``).
2. ``measure``: ``two_stages.TwoStages`` measures all cases, and the flagged ones again; ``rounds``
   run trials within a ``budget``. It asks ``decide`` at each checkpoint.
3. ``decide``: ``verdict.verdict.conclude`` makes quantities of raw samples (``statistics``) and
   judges them (``verdict``).
4. ``explain``: ``profiles.profiles_of`` finds the functions that made a case slower or faster.
5. ``report``: ``report.report``, which ``commands/result`` calls, shows a verdict. ``rows`` has
   what is shown; ``text``, ``data``, ``page``, ``comment`` and ``annotations`` show it.

All of them use ``words``, ``listing`` (what the surveys have found) and ``samples``, the file.
``tests/test_layout.py`` has the order in which they may import each other.

Under them are ``copies``, whose ``trees`` copies both trees, and ``processes``, in which the code
of a side runs. The gate starts a process by ``processes/starting`` and speaks with it by
``processes/messages``. In the process, ``processes/sides/worker`` is the program: it runs the tests
of a ``side`` in the pytest session of ``session``, where a test becomes a ``case``;
``survey`` there notes what the case is and what it runs (the folder ``following``), and ``steps``
measures it in ``turns`` with the process of the other side. The benchmarks of an asv suite become
tests there, too (the folder ``asv``). Only these processes import a framework.

Beside the way:

- The provider of a framework writes scripts that reproduce slower operations, after ``explain``.
- ``environments`` chooses the interpreter of each side, and has uv make an environment with the
  packages that a user gives one side alone.
- ``qualification`` measures the same code on both sides, to know what gates find on a machine.
- ``commands`` also has ``judge``, and ``bisect``, which runs gates for releases of a package until
  the first slower one is known.
"""
