"""What all verdicts share, of saved runs and of the gate.

``verdicts`` has the words, ``acceptance`` the intended slowdowns, ``grouping`` which operations are
judged by themselves, ``exact`` the differences that are counted and not timed. Two rules use them:
that of runs in ``compare``, and that of launches in ``gate.statistics``.
"""
