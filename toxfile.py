"""Loaded by tox first: refuse a Python that is too old before packages are downloaded for it."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # it is not what pyproject.toml asks for
    version = ".".join(map(str, sys.version_info[:3]))
    raise SystemExit(f"mnistbench needs Python 3.11 or newer; {sys.executable} is {version}")
