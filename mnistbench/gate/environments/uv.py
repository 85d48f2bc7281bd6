"""Find uv, run it, and find the reason in its output when it fails."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

from mnistbench.core import units
from mnistbench.core.child import Child, ChildError, without_job_variables
from mnistbench.core.errors import UsageError
from mnistbench.core.files import scratch

#: What uv and its error reports (miette) draw at the beginning of a line.
_DRAWN = "\u00d7│├╰─▶╞ \t"

#: The longest reason to show, in characters.
_LONGEST = 400


def find() -> str:
    """Return the path of uv: beside the interpreter, as the package ``uv`` names it, or on PATH."""
    beside = Path(sys.prefix, "bin", "uv")
    if os.access(beside, os.X_OK):
        return str(beside)
    try:
        # An import statement would make mypy ask for uv.
        return str(import_module("uv").find_uv_bin())
    except (ImportError, FileNotFoundError):
        pass
    if program := shutil.which("uv"):
        return program
    raise UsageError(
        "uv makes the environments, and it is not installed; install it with: pip install uv"
    )


def run(
    uv: str, arguments: Sequence[str], text: str = "", variables: Mapping[str, str] | None = None
) -> str:
    """Run uv, wait for it, and return its output.

    Args:
        uv: its path.
        arguments: its command line.
        text: its input.
        variables: of its environment, beside those of this process.

    Raises:
        UsageError: uv failed; the message has its reason.
    """
    # uv builds packages, which runs their code.
    environ = {**without_job_variables(os.environ), "NO_COLOR": "1", **(variables or {})}
    environ.pop("UV_SYSTEM_PYTHON", None)
    with scratch("uv") as folder:
        log = folder / "log"
        try:
            with Child([uv, *arguments], environ, log=log) as child:
                if text:
                    child.tell(text)
                return child.output(math.inf)  # a download may take hours
        except ChildError as error:
            raise UsageError(
                f"uv: {reason(log.read_text(encoding='utf-8', errors='replace')) or error}"
            ) from None


def indexes(output: str) -> list[str]:
    """Return the URLs of the indexes in which ``uv pip compile`` has found packages.

    They contain the credentials, which are only in the lines of the options. The one of the first
    package is the first.
    """
    named = re.findall(r"^--(?:extra-)?index-url (\S+)", output, re.MULTILINE)
    with_credentials = {without_credentials(url): url.rstrip("/") for url in named}
    found = map(without_credentials, re.findall(r"# from (\w+://\S+)", output))
    return [
        with_credentials.get(url, url)
        for url in dict.fromkeys(found)
        if url in with_credentials or not url.startswith("file:")  # a folder of --find-links
    ]


def without_credentials(url: str) -> str:
    """Return a URL without a user's name and password, and without a slash at its end."""
    parts = urlsplit(url.rstrip("/"))
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def reason(text: str) -> str:
    """Return the reason that uv gives for a failure as one line; empty if there is none.

    uv prints a headline (after ``error:``, or after a cross) and then its causes, the last of which
    is the most exact.
    """
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if re.match(r"\s*(error:|\u00d7)", line)]
    causes: list[str] = []
    for line in lines[heads[-1] :] if heads else [line for line in lines if line.strip()][-1:]:
        if line.lstrip(_DRAWN).startswith(("hint:", "help:")) or (
            causes and not line.strip(_DRAWN)
        ):
            break
        begins = re.match(r"\s*(error:|cause:|Caused by:|\u00d7|[├╰]─▶)", line)
        words = re.sub(r"^(error|cause|Caused by):\s*", "", line.strip(_DRAWN))
        if begins or not causes:
            causes.append(words)
        else:
            causes[-1] += f" {words}"
    why = [cause for cause in causes if cause.startswith("Because")] or list(
        dict.fromkeys([*causes[:1], *causes[-1:]])
    )
    return units.cut(": ".join(cause.rstrip(":") for cause in why), _LONGEST)
