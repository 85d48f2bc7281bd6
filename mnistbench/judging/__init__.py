"""What all verdicts share, of saved runs and of the gate.

``verdicts`` has the words, ``kinds`` the kinds of quantities, ``findings`` what is said of one
quantity, ``acceptance`` the intended slowdowns, ``grouping`` which operations are judged by
themselves, ``ratios`` the logarithms of ratios, ``distributions`` those of statistics, ``exact``
the differences that are counted and not timed. Two rules use them: that of runs in ``compare``, and
that of trials in ``gate.decide``.
"""
