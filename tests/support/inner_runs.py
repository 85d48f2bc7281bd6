"""What the runs of pytest that tests start inherit.

No plug-in that a test does not name: pytest-randomly, pytest-asyncio and pytest-timeout act on each
run once they are installed, and all of them together take a third of the time of a short run.
pyproject.toml has these options for the tests themselves where a plug-in would act on them.
"""

import os

#: Entry points of the plug-ins among the dependencies of the tests.
_PLUGINS = (
    "anyio",
    "asyncio",
    "hypothesispytest",
    "pytest_cov",
    "randomly",
    "rerunfailures",
    "timeout",
    "xdist",
    "xdist.looponfail",
)

#: Options that keep pytest from loading them; ``-p`` and a name loads one again.
BLOCKED = tuple(option for plugin in _PLUGINS for option in ("-p", f"no:{plugin}"))

#: The variable whose options each run of pytest has.
ADDOPTS = "PYTEST_ADDOPTS"


def environment_without(*prefixes):
    """Return the environment without the variables of these prefixes, the plug-ins blocked."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
    return {**kept, ADDOPTS: " ".join(BLOCKED)}
