"""From quantities to the verdict of a gate, as pure functions.

In the order of the data: ``estimates`` has the change of each quantity with its bounds;
``findings`` the levels of the test, what was flagged, and what the fresh launches make of it;
``reasons`` why a gate is inconclusive; ``decision`` the outcome of the test; ``verdict`` all that a
report needs, with the exact differences of ``exact_differences``.
"""
