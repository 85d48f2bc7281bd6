"""Report the calls of functions: by ``sys.monitoring``, or before Python 3.12 by profilers."""

from __future__ import annotations

import _thread
import cProfile
import enum
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import pytest

#: ``sys.monitoring``, of Python 3.12 and newer.
_MONITORING: Any = getattr(sys, "monitoring", None)
#: Numbers of tools there that have no fixed use.
_TOOLS = (4, 3)


class Mode(enum.Enum):
    """What is reported of calls."""

    OFF = enum.auto()
    CODE = enum.auto()  # at the latest when ``report`` is called
    FRAMES = enum.auto()  # at the call


@dataclass(eq=False)
class NoCalls:
    """No calls, where nobody asks which code runs; the classes below report some."""

    _is_wanted: Callable[[CodeType], bool]
    _note: Callable[[CodeType, FrameType | None], bool]
    _prefix: str  # of the paths of files of the tree

    def start(self) -> None:
        """Begin to report."""

    def stop(self) -> None:
        """End to report."""

    def begin(self) -> None:
        """Report all code objects again."""

    def report(self) -> None:
        """Report the code objects that were called and not reported yet."""

    def follow_hooks(self, manager: pytest.PytestPluginManager) -> None:
        """Report the calls of hooks that are implemented in the tree."""

    @contextmanager
    def switched(self, mode: Mode) -> Iterator[None]:  # noqa: ARG002  # it may cost nothing
        """Report calls in the body so, or none."""
        yield

    def is_replaced(self) -> bool:
        """Whether the code that was followed has set another profile function."""
        return False

    def misses_threads(self) -> bool:
        """Whether there are threads whose calls are not reported."""
        return False


class Monitoring(NoCalls):
    """Calls that ``sys.monitoring`` reports, in all threads.

    A code object is turned off once it was seen.
    """

    _tool = _TOOLS[0]

    def start(self) -> None:
        """Begin to report."""
        self._tool = next(tool for tool in _TOOLS if _MONITORING.get_tool(tool) is None)
        _MONITORING.use_tool_id(self._tool, "mnistbench")
        events = _MONITORING.events
        for event in (events.PY_START, events.PY_RESUME):
            _MONITORING.register_callback(self._tool, event, self._called)
        _MONITORING.set_events(self._tool, events.PY_START | events.PY_RESUME)

    def stop(self) -> None:
        """End to report."""
        _MONITORING.set_events(self._tool, _MONITORING.events.NO_EVENTS)
        _MONITORING.free_tool_id(self._tool)

    def begin(self) -> None:
        """Report all code objects again."""
        _MONITORING.restart_events()

    def _called(self, code: CodeType, _: int) -> object:
        if self._is_wanted(code) and self._note(code, sys._getframe(1)):  # noqa: SLF001
            return None
        return _MONITORING.DISABLE


_START_THREAD = _thread.start_new_thread


@dataclass(eq=False)
class Profiling(NoCalls):
    """Calls that profilers get, before Python 3.12. They are set only where they are needed.

    That of the standard library counts the calls of each code object: it is written in C and costs
    a third of a function of Python, which has to look at each call to find those of an import.
    """

    def __post_init__(self) -> None:
        """Prepare the profilers."""
        self._mode = Mode.OFF
        self._counting = cProfile.Profile()
        # Line and file of code whose calls do not count any more.
        self._known: set[tuple[int, str]] = set()
        self._seen: set[tuple[int, str]] = set()  # of these since the last test or fixture began
        self._called = self._function()
        self._thread_count = 0

    def start(self) -> None:
        """Begin to report."""
        self._thread_count = threading.active_count()
        threading.setprofile(self._called)
        # Threads that the module threading does not start have no profile function.
        _thread.start_new_thread = self._start_thread

    def _start_thread(self, *arguments: Any) -> int:
        self._thread_count += 1
        return _START_THREAD(*arguments)

    def stop(self) -> None:
        """End to report."""
        threading.setprofile(None)
        _thread.start_new_thread = _START_THREAD
        self._set(Mode.OFF)

    def begin(self) -> None:
        """Report all code objects again."""
        self._known.difference_update(self._seen)
        self._seen.clear()

    def report(self) -> None:
        """Report the code objects that were called and not reported yet."""
        with self.switched(Mode.OFF):
            codes = [counted.code for counted in self._counting.getstats()]
            self._counting.clear()
            for code in codes:
                if isinstance(code, CodeType) and self._is_wanted(code):
                    self._note(code, None)

    def follow_hooks(self, manager: pytest.PytestPluginManager) -> None:
        """Follow the calls of hooks that are implemented in the tree."""
        known: set[Any] = set()  # implementations
        own: set[Any] = set()  # of the tree
        modes: list[Mode] = []

        # It runs thirty times for a test.
        def before(_: str, implementations: Sequence[Any], __: object) -> None:
            modes.append(self._mode)
            if not known.issuperset(implementations):
                known.update(implementations)
                own.update(filter(self._is_own_hook, implementations))
            if self._mode is Mode.OFF and not own.isdisjoint(implementations):
                self._set(Mode.FRAMES)

        def after(*_: object) -> None:
            mode = modes.pop()
            if mode is not self._mode:
                self._set(mode)

        manager.add_hookcall_monitoring(before, after)

    def _is_own_hook(self, implementation: Any) -> bool:
        plugin = implementation.plugin
        file = getattr(plugin, "__file__", None) or getattr(
            sys.modules.get(type(plugin).__module__), "__file__", None
        )
        code = getattr(implementation.function, "__code__", None)
        is_of_tree = isinstance(file, str) and file.startswith(self._prefix)
        return is_of_tree or (code is not None and self._is_wanted(code))

    @contextmanager
    def switched(self, mode: Mode) -> Iterator[None]:
        """Report calls in the body so, or none."""
        before = self._mode
        if mode is not before:
            self._set(mode)
        try:
            yield
        finally:
            if mode is not before:
                self._set(before)

    def _set(self, mode: Mode) -> None:
        self._counting.disable()
        self._mode = mode
        if mode is Mode.CODE:
            self._counting.enable(subcalls=False, builtins=False)
        else:
            sys.setprofile(self._called if mode is Mode.FRAMES else None)

    def is_replaced(self) -> bool:
        """Whether the code that was followed has set another profile function."""
        function: object = sys.getprofile()
        wanted = {Mode.CODE: self._counting, Mode.FRAMES: self._called}.get(self._mode)
        return wanted is not None and function is not wanted

    def misses_threads(self) -> bool:
        """Whether there are threads whose calls are not reported."""
        return self._thread_count > 1

    def _function(self) -> Callable[[FrameType, str, object], None]:
        """Return the profile function, which runs at each call and has to be quick."""
        known = self._known

        # The attribute f_code, id() and the hash of code take several times as long: the first two
        # are audit events.
        def called(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                try:
                    if (frame.f_lineno, frame.f_globals["__file__"]) not in known:
                        self._note_frame(frame)
                except (KeyError, TypeError):
                    self._note_frame(frame)

        return called

    def _note_frame(self, frame: FrameType) -> None:
        if self._mode is Mode.OFF:
            return
        code = frame.f_code
        is_own = self._is_wanted(code)
        if is_own and self._note(code, frame):
            return
        if code.co_filename == frame.f_globals.get("__file__"):  # else made by exec
            key = frame.f_lineno, code.co_filename
            self._known.add(key)
            if is_own:
                self._seen.add(key)
