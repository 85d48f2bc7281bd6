"""A process that surveys trees and traces their cases, each in a fork of its own.

Reads ``TASK OUTPUT TREE OPTIONS`` as JSON lists from its input and writes a line after each;
imports what the forks need once. Options are fields of the job of a survey.
"""

from __future__ import annotations

import decimal
import dis
import functools
import gc
import importlib
import inspect
import json
import os
import re
import sys
import threading
import traceback
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import Any

import pytest
import pytest_benchmark.plugin  # noqa: F401
from _pytest.config import default_plugins

from mnistbench.gate.processes.messages import SurveyJob
from mnistbench.gate.processes.sides import session, survey
from mnistbench.gate.processes.sides.side import SideError

#: pytest's plug-ins of the sessions, whatever is installed.
PLUGINS = ("-p", "pytest_benchmark.plugin", "-p", "mnistbench.pytest_plugin.plugin")

#: Files in ``OUTPUT``.
SURVEYED = "surveyed.json"

#: Numbers above it are ids of objects.
_LARGEST = 1_000_000_000


def main() -> None:
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    gc.freeze()
    tasks = {"survey": survey_tree, "trace": trace_tree}
    for line in sys.stdin:
        task, output, tree, options = json.loads(line)
        child = os.fork()
        if not child:
            try:
                log = os.open(f"{output}/log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                tasks[task](Path(output), Path(tree), **options)
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        os.waitpid(child, 0)
        sys.stdout.write("done\n")
        sys.stdout.flush()


# ---- The survey, as the gate runs it -------------------------------------------------------------


def survey_tree(output: Path, tree: Path, **options: Any) -> None:
    """Write what the survey of a tree says."""
    said: dict[str, Any] = {}
    job = SurveyJob(
        side="head",
        tree=str(tree),
        directory=str(tree),
        home=str(Path(session.__file__).parents[3]),
        repository=str(tree.parent / "nowhere"),
        arguments=["bench"],
        phases=[],
        threads=0,
        seed=1,
        **options,
    )
    # They read the metadata of all installed packages, which are the same on both sides.
    session._plugins = lambda _: list(PLUGINS)
    survey.packages = dict
    survey.loaded_packages = lambda _: ()
    try:
        survey.survey(job, lambda **message: said.update(message), sys.stdin)
    except SideError as error:
        said["error"] = str(error)
    (output / SURVEYED).write_text(json.dumps(said))


# ---- What the cases do ---------------------------------------------------------------------------


class Tracer:
    """Writes what each test runs, in a process of its own: the instructions of functions."""

    def __init__(self, output: Path, tree: Path) -> None:
        self._output = output
        self._prefix = f"{tree}{os.sep}"
        #: By thread: the system gives the number of a thread that ended to another.
        self._logs: dict[threading.Thread, list[str]] = {}

    @pytest.fixture
    def benchmark(self):
        """Call the function once."""
        return lambda function, *arguments, **options: function(*arguments, **options)

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run a test in a fork, with all its fixtures."""
        child = os.fork()
        if not child:
            reports: list[pytest.TestReport] = []
            try:
                self._log(process_state())
                threading.settrace(self._trace)
                sys.settrace(self._trace)
                reports = run_protocol(item)
            finally:
                sys.settrace(None)
                text = {
                    "failed": next((str(r.longrepr) for r in reports if not r.passed), ""),
                    "log": [line for log in self._logs.values() for line in log],
                }
                name = re.sub(r"\W", "_", item.nodeid)
                (self._output / f"trace {name}.json").write_text(
                    json.dumps({"id": item.nodeid, **text})
                )
                os._exit(0)
        os.waitpid(child, 0)
        return True

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        code = frame.f_code
        # Statements of a module or a class may swap places and nothing else is different.
        is_function = code.co_flags & inspect.CO_OPTIMIZED
        if not is_function or not code.co_filename.startswith(self._prefix):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [shown(frame.f_locals.get(name)) for name in names]
        path = code.co_filename.removeprefix(self._prefix)
        self._log(f"{event} {path}:{code.co_qualname}({', '.join(values)})")
        return self._trace_inner

    def _trace_inner(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            name, text = instructions(frame.f_code).get(frame.f_lasti, ("", ""))
            value = ""
            if name in ("LOAD_GLOBAL", "LOAD_NAME"):
                loaded = text.removeprefix("NULL + ")
                value = shown(frame.f_globals.get(loaded, frame.f_builtins.get(loaded)))
            if name != "PUSH_NULL":  # it depends on which instruction loads an attribute
                self._log(f"{name} {text} {value}")
        elif event == "return":
            self._log(f"return {shown(argument)}")
        return self._trace_inner

    def _log(self, text: str) -> None:
        log = self._logs.setdefault(threading.current_thread(), [])
        log.append(text.replace(self._prefix, ""))


def process_state() -> str:
    """Return what the code of a project may set in a process."""
    own = sorted((name, value) for name, value in os.environ.items() if re.fullmatch(r"f\d", name))
    return repr((gc.get_threshold(), decimal.getcontext().prec, own))


def run_protocol(item: pytest.Item) -> list[pytest.TestReport]:
    from _pytest.runner import runtestprotocol

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    return runtestprotocol(item, log=False, nextitem=None)


@functools.cache
def instructions(code: CodeType) -> dict[int, tuple[str, str]]:
    """Return the name and the argument of each instruction, without positions."""
    jumps = {*dis.hasjrel, *dis.hasjabs}
    return {
        step.offset: (
            # CPython loads no method of a local name that the module imports, too.
            step.opname.replace("LOAD_METHOD", "LOAD_ATTR"),
            f"code {step.argval.co_name}"
            if isinstance(step.argval, CodeType)
            else ""
            if step.opcode in jumps
            else step.argrepr.removeprefix("NULL|self + "),
        )
        for step in dis.get_instructions(code)
    }


def shown(value: object, depth: int = 3) -> str:
    """Return the data of a value, without addresses."""
    if isinstance(value, int) and abs(value) > _LARGEST:
        return "an address"
    if isinstance(value, int | float | str | bytes | None):
        return repr(value)
    if isinstance(value, list | tuple | set | frozenset | dict) and depth:
        members = value.items() if isinstance(value, dict) else value
        inner = ", ".join(shown(member, depth - 1) for member in list(members)[:20])
        return f"{type(value).__name__}({inner})"
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    return type(value).__qualname__


def trace_tree(output: Path, tree: Path) -> None:
    """Write what each case of a tree runs."""
    sys.path.insert(0, str(tree))
    os.chdir(tree)
    pytest.main(
        ["-q", "-s", "bench", "-p", "no:cacheprovider", "--assert=plain"],
        plugins=[Tracer(output, tree)],
    )


if __name__ == "__main__":
    main()
