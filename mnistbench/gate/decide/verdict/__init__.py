"""From quantities to the verdict of a gate, as pure functions.

In the order of the data: ``estimates`` has the change of each quantity with its bounds;
``findings`` the levels of the test, what was flagged, and what the fresh trials make of it;
``decision`` the outcome of the test, with what has to be ruled out for a pass; ``reasons`` the
words for why a gate is inconclusive; ``verdict`` all that a report needs, with the exact
differences of ``exact_differences``.
"""
