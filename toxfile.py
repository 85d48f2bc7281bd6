"""Loaded by tox first: refuse a Python that is too old before packages are downloaded for it."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # it is not what pyproject.toml asks for
    version = ".".join(map(str, sys.version_info[:3]))
    raise SystemExit(
        f"mnistbench needs Python 3.11 or newer, and {sys.executable} is {version}; run tox with a "
        "newer one: python3.12 -m pip install tox && python3.12 -m tox"
    )
