"""How uv is found, and its reasons when it fails."""

import sys

import pytest

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import uv

CONFLICT = (
    "Because torchvision>=0.29.2 depends on torch>=2.14.0 and you require torch==2.13.0, we can "
    "conclude that your requirements and torchvision>=0.29.2 are incompatible. And because you "
    "require torchvision==0.29.2, we can conclude that your requirements are unsatisfiable."
)

#: Output of uv 0.13, then of earlier versions.
FAILURES = {
    """\
Using Python 3.11.7 environment at: x
error: No solution found when resolving dependencies
  cause: Because torchvision>=0.29.2 depends on torch>=2.14.0 and you require torch==2.13.0, we can conclude that your requirements and torchvision>=0.29.2 are incompatible.
         And because you require torchvision==0.29.2, we can conclude that your requirements are unsatisfiable.
""": CONFLICT,  # noqa: E501
    """\
error: Failed to fetch: https://pypi.org/simple/torch/
  cause: error sending request for url (https://pypi.org/simple/torch/)
  cause: tcp connect error
  cause: Connection refused (os error 111)
""": "Failed to fetch: https://pypi.org/simple/torch/: Connection refused (os error 111)",
    """\
  \u00d7 No solution found when resolving dependencies:
  ╰─▶ Because there is no version of torch==9.9 and you require torch==9.9,
      we can conclude that your requirements are unsatisfiable.

      hint: something else
""": "Because there is no version of torch==9.9 and you require torch==9.9, we can conclude that "
    "your requirements are "
    "unsatisfiable.",
    """\
  \u00d7 Failed to download `torch==2.13.0`
  ├─▶ Failed to extract archive
  ╰─▶ No space left on device (os error 28)
  help: clean the cache
""": "Failed to download `torch==2.13.0`: No space left on device (os error 28)",
    (
        "error: Failed to install: a.whl\n  Caused by: failed to write\n  Caused by: No space "
        "left on device (os error 28)\n"
    ): ("Failed to install: a.whl: No space left on device (os error 28)"),
    "error: alone\n": "alone",
    "Killed\n\n": "Killed",
    "": "",
    "error: " + "x" * 500: "x" * 397 + "...",
}


@pytest.mark.parametrize("output", FAILURES)
def test_the_reason_is_one_line(output):
    assert uv.reason(output) == FAILURES[output]


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No uv: neither beside the interpreter, nor as a package, nor on PATH."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))


def program(path):
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("nowhere")
def test_uv_is_found_on_path_as_a_package_or_beside_the_interpreter(tmp_path, monkeypatch):
    with pytest.raises(
        UsageError,
        match=r"^uv makes the environments, and it is not installed; .*: pip install uv$",
    ):
        uv.find()
    on_path = program(tmp_path / "path" / "uv")
    assert uv.find() == str(on_path)
    module = type("uv", (), {"find_uv_bin": staticmethod(lambda: "/of/the/package")})
    monkeypatch.setitem(sys.modules, "uv", module)
    assert uv.find() == "/of/the/package"
    beside = program(tmp_path / "prefix" / "bin" / "uv")
    assert uv.find() == str(beside)


def test_what_cannot_be_started_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"nothing: cannot be started \(No such file"):
        uv.run(str(tmp_path / "nothing"), [])
