"""Comparison of saved runs.

``diff`` pairs cases and operations, ``judge`` applies thresholds to the differences.

Question: what differs between saved runs, and does it matter? Input: runs
(``saved_runs.run``) and a ``Criteria`` of thresholds and settings. Output: a ``Comparison``
with the differences, and a ``Judgement`` of it. ``exact`` lists differences of counts. The words of
verdicts and the acceptance of slowdowns are those of ``judging``.

Nothing here imports torch.
"""
