"""What the runs of pytest that tests start inherit.

pytest-randomly, pytest-asyncio and pytest-timeout act on each run once they are installed. Tests
that are about them load them; all other runs have these options, and pyproject.toml has them for
the tests themselves.
"""

import os

#: Options that keep pytest from loading the plug-ins, which need not be installed.
BLOCKED = ("-p", "no:randomly", "-p", "no:asyncio", "-p", "no:timeout")

#: The variable whose options each run of pytest has.
ADDOPTS = "PYTEST_ADDOPTS"


def environment_without(*prefixes):
    """Return the environment without the variables of these prefixes, the plug-ins blocked."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**kept, ADDOPTS: " ".join(BLOCKED)}
