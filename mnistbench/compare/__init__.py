"""Comparison of saved runs.

Question: what differs between saved runs, and does it matter? Input: runs
(``saved_runs.run``) and a ``Criteria`` (``criteria``) of thresholds and settings. Output: a
``Comparison`` with the differences, and a ``Judgement`` of it, which ``report`` shows.

``pairing`` finds the cases that both sides have and the runs that are samples of them, ``diff``
compares their operations, ``quantities`` says what of them is judged, ``judge`` applies thresholds,
and ``problems`` says what cannot be judged. ``report`` draws the ledger of operations.

``replacements`` finds operations that replaced others, ``iterations`` different numbers of
iterations in traces; ``exact`` lists differences of counts. ``prediction_interval`` is the interval
of several base runs. The words of verdicts and the acceptance of slowdowns are those of
``judging``. ``command`` is ``mnistbench compare``.

Nothing here imports torch.
"""
