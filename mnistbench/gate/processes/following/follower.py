"""Follow the tests of a survey: which code each of them runs, and which files it opens.

What a fixture runs and opens belongs to every test that uses it. The rest, at imports, while tests
are collected and between tests, is what runs *outside*.

The process of a side loads this module; it does not import torch.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import linecache
import os
import stat
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Generic

import pytest

from mnistbench.core.machine import running_children
from mnistbench.gate.processes.following.callers import calling_file, is_for_import
from mnistbench.gate.processes.following.calls import Mode, Monitoring, NoCalls, Profiling
from mnistbench.gate.processes.following.fetched import FetchedNames
from mnistbench.gate.processes.following.opened import OpenedFiles
from mnistbench.gate.processes.messages import OUTSIDE, Followed, RunCode
from mnistbench.gate.words import ASV_FILES, CONFIGURATION_FILES, MODULE
from mnistbench.measuring.provider import imported_provider
from mnistbench.measuring.timing import Clock

#: Ends of names of compiled files, which the system loads when a module is imported: which these
#: are is known by the modules.
_COMPILED_FILES = (".pyc", ".so")

#: Audit events with the path of a file as their first argument.
_OPENING = frozenset({"ctypes.dlopen", "open", "sqlite3.connect"})

#: Audit events with the path or the descriptor of a folder.
_LISTING = frozenset({"os.listdir", "os.scandir"})

#: Ends of files under /proc with the state of a process. The survey itself reads them at each call.
_PROCESS_STATE = ("/children", "/clear_refs", "/schedstat", "/stat", "/status")

#: Flags with which a file is opened to be written.
_WRITING = os.O_WRONLY | os.O_RDWR

#: Audit events of a process that is started.
_STARTS = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "subprocess.Popen",
    }
)

#: Audit events of code that is called while other code runs.
_TRACES = frozenset({"sys.addaudithook", "sys.settrace"})

#: All events that count. There are many others.
_EVENTS = frozenset({"exec"}) | _OPENING | _LISTING | _STARTS | _TRACES

#: Packages that compile the bytecode of functions, so that these are not seen to run. Others read
#: the source, which is seen, or run the function once.
_COMPILERS = ("numba",)

#: Names of functions that tell code whether it is compiled.
_ASKING = frozenset({"is_compiling", "is_dynamo_compiling", "is_exporting"})

#: The system's own functions.
_STAT = os.stat
_LSTAT = os.lstat

#: Names of code that runs at the definition of a generic function, which is not run then.
_TYPE_PARAMETERS = "<generic parameters of"

#: Of a function that runs more often at imports, not every statement is found.
_MAX_CALLS = 10_000

_PROCESSES = "starts processes, whose code is not followed"
_OTHER_PROFILER = "sets a profile function, so its code is not followed"
_OTHER_PROFILER_OUTSIDE = "an import sets a profile function, so what it runs is not followed"
_EARLIER_PROCESSES = "may use processes that were started before, whose code is not followed"
_EARLIER_THREADS = "may use threads that were started before, whose code is not followed"
_IS_COMPILED = "is compiled by torch.compile, whose code is not followed"
_ASKS = "asks whether it is compiled, and what it runs then is not followed"
_TRACING = "a trace function or an audit hook is set, whose code is not followed"
_PYTHONS = "a process of Python is started outside of tests, whose code is not followed"


class Follower:
    """A plug-in of pytest that follows the tests of a side."""

    def __init__(
        self,
        tree: Path,
        case_id: Callable[[str], str],
        *,
        follows_code: bool = True,
        differing: Collection[str] = (),
    ) -> None:
        """Prepare.

        Args:
            tree: of the side.
            case_id: returns the id of a test that both sides share.
            follows_code: whether calls are followed, and not files alone.
            differing: files that differ between the trees, relative to them.
        """
        self._tree = tree
        self._prefix = f"{tree}{os.sep}"
        self._case_id = case_id
        self._differing = frozenset(differing)
        self._relatives: dict[str, str] = {}
        self._watched = OpenedFiles(
            str(tree / path) for path in differing if not _is_configuration(path)
        )
        self._fetching = FetchedNames(self._prefix)
        self._began_s = time.time()
        # Of the last test; of the longest one, the first with loading.
        self._ended_ns = Clock.wall_ns()
        self.longest_s = 0.0
        self._running: object = None  # the test or fixture; None outside
        self._is_started = False
        self._import_depth = 0  # of modules of the tree that are imported now
        # What ran -> files that it opened, code that it ran, and why not all of it is known.
        self._opened: dict[object, set[str]] = defaultdict(set)
        self._ran: dict[object, set[RunCode]] = defaultdict(set)
        self._unfollowed: dict[object, dict[str, None]] = defaultdict(dict)
        self._written: set[str] = set()  # files outside of the tree and of the environment
        self._read_by_plugins: set[str] = set()  # files with configuration
        self._fetched: dict[object, set[str]] = defaultdict(set)
        self._outside: dict[RunCode, None] = {}
        self._acting: set[tuple[str, int]] = set()
        # How many functions were compiled when a case was last followed as it is written.
        self._compilations_followed = 0
        self._asks: set[object] = set()  # what has run code that asks whether it is compiled
        self._outside_calls = Counter[RunCode]()
        self._made: dict[CodeType, RunCode] = {}
        self._imported: set[str] = set()  # files that were opened to be imported, lately
        self.sources: dict[str, tuple[str, ...]] = {}  # node id -> files, relative to the tree
        self._fixtures: list[Any] = []  # of the test
        self._read: dict[str, tuple[str, ...]] = {}  # node id -> files that it has opened
        self._names: dict[str, tuple[str, ...]] = {}  # node id -> names that it has fetched
        self._of_test: dict[str, tuple[set[RunCode], str]] = {}  # code, why it is not all
        # Modules that were imported before the first conftest.py.
        self.plugins: frozenset[str] = frozenset()
        kind = NoCalls
        if follows_code:
            kind = Monitoring if sys.version_info >= (3, 12) else Profiling
        self._calls = kind(self._is_wanted, self._note_call, self._prefix)
        sys.addaudithook(self._note_event)

    # ---- Events ----------------------------------------------------------------------------------

    def _is_wanted(self, code: CodeType) -> bool:
        """Whether a code object is that of a function or a module in the tree, or was made."""
        if not code.co_filename.startswith(self._prefix):
            return self._is_made(code)
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
        return (is_function or code.co_name == MODULE) and not code.co_name.startswith(
            _TYPE_PARAMETERS
        )

    def _is_made(self, code: CodeType) -> bool:
        """Whether a function comes from no file, such as one that ``exec`` makes."""
        return (
            bool(code.co_flags & inspect.CO_OPTIMIZED)
            and not code.co_filename.startswith((os.sep, "<frozen"))
            and self._running is not None
        )

    def _note_call(self, code: CodeType, frame: FrameType | None) -> bool:
        """Note a call; return whether more calls of this code count.

        Args:
            code: that runs.
            frame: of the call; None if nothing of the tree is imported.
        """
        if not code.co_filename.startswith(self._prefix):
            if code not in self._made:
                self._made[code] = RunCode("", f"{code.co_qualname} {_hash(code)}", 0)
            self._ran[self._running].add(self._made[code])
            return False
        # Code objects of two files may be equal.
        ran = RunCode(self._relative(code.co_filename), code.co_qualname, code.co_firstlineno)
        if self._running is not None:
            self._ran[self._running].add(ran)
            if not _ASKING.isdisjoint(code.co_names):
                self._asks.add(self._running)
            if not self._import_depth:
                return False
        self._outside.setdefault(ran)
        self._outside_calls[ran] += 1
        if code.co_name == MODULE:
            return True
        self._acting.add(self._importing_statement(frame))
        return self._outside_calls[ran] < _MAX_CALLS

    def _importing_statement(self, frame: FrameType | None) -> tuple[str, int]:
        """Return the file and the line of the statement at whose import a call runs; "" if none."""
        outer = frame.f_back if frame else None
        while outer is not None:
            code = outer.f_code
            if not code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(
                self._prefix
            ):
                return self._relative(code.co_filename), outer.f_lineno
            outer = outer.f_back
        return "", 0

    def _note_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_started or event not in _EVENTS:
            return
        if event in _OPENING:
            flags = arguments[2] if event == "open" and len(arguments) > 2 else 0
            self._note_file(event, arguments[0], flags if isinstance(flags, int) else 0)
        elif event in _LISTING:
            if not is_for_import(sys._getframe(1)):  # noqa: SLF001
                self._note_opened(arguments[0] or ".")
        elif event == "exec":
            code = arguments[0]
            # Not that of the standard library, such as the methods of a dataclass.
            caller = sys._getframe(1).f_code.co_filename  # noqa: SLF001
            is_made = isinstance(code, CodeType) and not code.co_filename.startswith(os.sep)
            if is_made and caller.startswith(self._prefix):
                self._fetching.note_code(code)
        else:
            self._note_unfollowed(event, arguments)

    def _note_unfollowed(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note what makes code run that is not followed: processes, trace functions."""
        if event in _TRACES:
            if self._is_by_tree(sys._getframe(2)):  # noqa: SLF001
                self._unfollowed[self._running][_TRACING] = None
        elif event in _STARTS:
            if self._is_by_compiler(sys._getframe(2)):  # noqa: SLF001
                return  # a compiler of C++, which runs nothing of the tree
            if self._running is not None:
                self._unfollowed[self._running][_PROCESSES] = None
            elif _is_python(event, arguments) and self._is_by_tree(sys._getframe(2)):  # noqa: SLF001
                self._unfollowed[None][_PYTHONS] = None

    def _note_file(self, event: str, name: object, flags: int) -> None:
        if isinstance(name, os.PathLike):
            name = os.fspath(name)
        if not isinstance(name, str | bytes) or not name:
            return
        name = os.fsdecode(name)
        if name.startswith("/proc/") and name.endswith(_PROCESS_STATE):
            return
        # A Path costs more than the event.
        path = os.path.abspath(name)  # noqa: PTH100
        if event == "open":
            # Python writes compiled files into a new environment, which may be in the user's cache.
            if flags & _WRITING and not path.startswith((self._prefix, f"{sys.prefix}{os.sep}")):
                self._written.add(path)
            if path.endswith(_COMPILED_FILES):
                return
            is_configuration = _is_configuration(path)
            may_be_imported = is_configuration or path.endswith(".py")
            frame = sys._getframe(2)  # noqa: SLF001
            if may_be_imported and (is_for_import(frame) or self._is_by_compiler(frame)):
                self._imported.add(os.path.realpath(path))
                return
            may_be_by_plugin = is_configuration and self._running is None
            if may_be_by_plugin and not self._is_by_tree(sys._getframe(2)):  # noqa: SLF001
                self._read_by_plugins.add(os.path.realpath(path))
                return
        self._note_opened(path)

    def _note_opened(self, name: Any) -> None:
        if not isinstance(name, str | bytes | os.PathLike):  # the descriptor of a folder
            try:
                name = os.readlink(f"/proc/self/fd/{int(name)}")  # noqa: PTH115
            except (OSError, TypeError, ValueError):
                return
        path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100  # a Path costs more
        for opened in {path, os.path.realpath(path)}:  # a link may differ, or what it leads to
            self._opened[self._running].add(opened)
            if self._import_depth:  # later tests use what the module has read
                self._opened[None].add(opened)

    def _note_rest(self) -> None:
        """Note the names that were fetched, and files that something has opened without an event.

        It notes what the running code has fetched since the last call.
        """
        self._fetched[self._running] |= self._fetching.drain()
        for path in self._watched.drain():
            real = os.path.realpath(path)
            if not (path.endswith(".py") and real in self._imported):
                self._note_opened(real)
        self._imported.clear()

    def _is_by_tree(self, frame: FrameType | None) -> bool:
        """Whether code of the tree calls, perhaps by the standard library."""
        return calling_file(frame).startswith(self._prefix)

    def _is_by_compiler(self, frame: FrameType) -> bool:
        """Whether a compiler of functions calls, which sees their code but runs none of it."""
        provider = imported_provider()
        return bool(provider.framework) and provider.is_of_compiler(calling_file(frame))

    # ---- Hooks of pytest -------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_load_initial_conftests(
        self, early_config: pytest.Config
    ) -> Generator[None, Any, Any]:
        """Note what pytest and its plug-ins have imported, and follow hooks from here on."""
        self.plugins = frozenset(sys.modules)
        early_config.add_cleanup(self._stop)
        self._calls.follow_hooks(early_config.pluginmanager)
        return (yield)

    def begin(self) -> None:
        """Follow from here on; plug-ins of the tree are imported before any hook is called."""
        self._watched.drain()
        self._is_started = True
        self._calls.start()
        self._fetching.start()
        os.stat = self._looking(_STAT)
        os.lstat = self._looking(_LSTAT)

    def _looking(self, function: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        """Return a function that also notes for which files code of the tree asks."""

        def looking(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
            if not isinstance(path, int) and self._is_by_tree(sys._getframe(1)):  # noqa: SLF001
                self._note_asked(path)
            return function(path, *arguments, **options)

        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if function in able:  # shutil asks for this
                able.add(looking)
        return looking

    def _note_asked(self, name: Any) -> None:
        """Note a file whose status is asked for, if it differs: others tell nothing."""
        with suppress(TypeError, ValueError):
            path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100  # calls no function of these
            if path.removeprefix(self._prefix) in self._differing:
                self._opened[self._running].add(path)

    def _stop(self) -> None:
        self._note_rest()
        self._is_started = False
        os.stat = _STAT
        os.lstat = _LSTAT
        self._fetching.stop()
        self._calls.stop()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Follow calls of the collection: functions that name or make parameters."""
        with self._calls.switched(Mode.CODE):
            return (yield)

    @contextmanager
    def importing(self, *, is_own: bool) -> Iterator[None]:
        """Follow calls in the body, the import of a module, if it is one of the tree."""
        self._calls.report()
        self._import_depth += is_own
        if is_own:
            self._calls.begin()
        try:
            with self._calls.switched(Mode.FRAMES if is_own else Mode.OFF):
                yield
                if is_own and self._calls.is_replaced():
                    self._unfollowed[None][_OTHER_PROFILER_OUTSIDE] = None
        finally:
            self._import_depth -= is_own
            # A file whose lines were only shown is read from there by what compiles its text.
            linecache.clearcache()
            if is_own:
                self._calls.begin()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Follow no calls in the body, whose time is measured."""
        with self._calls.switched(Mode.OFF):
            yield

    @contextmanager
    def compiled(self) -> Iterator[None]:
        """Follow calls in the body, without functions that a compiler makes and runs."""
        self._calls.report()
        ran = self._ran[self._running]
        before = {*ran}
        yield
        self._calls.report()
        provider = imported_provider()
        if provider.compilations():
            ran -= {
                code
                for code in ran - before
                if not code.path or provider.is_made_by_compiler(code.name)
            }

    def follow_eagerly(self, call: Callable[[], object]) -> None:
        """Follow a call of the running case as it is written, if something is compiled.

        Compiled functions are not seen to run. If the call fails, they count as not followed.
        """
        provider = imported_provider()
        if not provider.compilations():
            return
        self._calls.begin()
        with (
            suppress(Exception, pytest.skip.Exception, pytest.fail.Exception),
            provider.run_eagerly(),
        ):
            call()
            self._compilations_followed = provider.compilations()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: object) -> Generator[None, Any, Any]:
        """Note what a fixture runs and opens, which other tests may use, too."""
        with self._followed(fixturedef, Mode.CODE):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        """Follow the calls of a test."""
        with self._calls.switched(Mode.CODE):
            done = yield
            if self._calls.is_replaced():
                self._unfollowed[self._running][_OTHER_PROFILER] = None
            return done

    @contextmanager
    def _followed(self, running: object, mode: Mode) -> Iterator[None]:
        self._calls.report()
        self._note_rest()
        outer = self._running
        self._running = running
        self._opened[running] = set()
        self._fetched[running] = set()
        self._ran[running] = set()
        self._unfollowed[running] = {}
        process_count = _process_count()
        self._calls.begin()
        try:
            with self._calls.switched(mode):
                yield
                if self._calls.is_replaced():
                    self._unfollowed[running][_OTHER_PROFILER] = None
                if _process_count() != process_count:
                    self._unfollowed[running][_PROCESSES] = None
        finally:
            self._calls.report()
            self._note_rest()
            self._running = outer
            self._calls.begin()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Note the fixtures of a test, with those that it has asked for, and follow their ends."""
        self._fixtures = _fixtures(item)
        with self._calls.switched(Mode.CODE):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Store what a test has run and opened."""
        has_threads = self._calls.misses_threads()
        has_processes = bool(running_children() - _resource_tracker())
        # Between its fixtures and its call pytest alone runs.
        with self._followed(item, Mode.OFF):
            done = yield
            if has_threads or self._calls.misses_threads():
                self._unfollowed[item][_EARLIER_THREADS] = None
            if has_processes:
                self._unfollowed[item][_EARLIER_PROCESSES] = None
            if imported_provider().compilations() > self._compilations_followed:
                self._unfollowed[item][_IS_COMPILED] = None
            elif self._compilations_followed and self._asks & {item, *_fixtures(item)}:
                self._unfollowed[item][_ASKS] = None
        began_ns = self._ended_ns
        self._ended_ns = Clock.wall_ns()
        self.longest_s = max(self.longest_s, (self._ended_ns - began_ns) / 1e9)
        fixtures = self._fixtures
        node_id = self._case_id(item.nodeid)
        read = {path for part in (item, *fixtures) for path in self._opened.get(part, ())}
        self._read[node_id] = self._in_tree(read)
        sources = read | self._opened[None] | _source_files(item, fixtures)
        self.sources[node_id] = tuple(
            path for path in self._in_tree(sources) if not path.endswith(_COMPILED_FILES)
        )
        parts = (item, *fixtures)
        names = {name for part in parts for name in self._fetched.get(part, ())}
        self._names[node_id] = tuple(sorted(names))
        codes = {code for part in parts for code in self._ran.get(part, ())}
        reasons = {why for part in parts for why in self._unfollowed.get(part, ())}
        self._of_test[node_id] = codes, "; ".join(sorted(reasons))
        return done

    def _in_tree(self, paths: Collection[str]) -> tuple[str, ...]:
        """Return the files and folders of the tree among these, without those that tests wrote."""
        root = os.path.realpath(self._tree)
        in_tree = {os.path.relpath(path, root): path for path in paths if _is_in(path, root)}
        return tuple(
            relative
            for relative, path in sorted(in_tree.items())
            if relative in self._differing or self._is_older(path)
        )

    def _is_older(self, path: str) -> bool:
        """Whether a file is older than the survey; a folder may be written by it."""
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            return False
        return stat.S_ISDIR(status.st_mode) or status.st_mtime < self._began_s

    # ---- The result ------------------------------------------------------------------------------

    def followed(self, node_ids: Collection[str]) -> Followed:
        """Return what ran outside of tests, and in these."""
        positions: dict[RunCode, int] = {}
        for code in (
            *self._outside,
            *(code for codes, _ in self._of_test.values() for code in codes),
        ):
            positions.setdefault(code, len(positions))
        of_tests = {node_id: test for node_id, test in self._of_test.items() if node_id in node_ids}
        opened = {node_id: paths for node_id, paths in self._read.items() if node_id in node_ids}
        unfollowed = {node_id: why for node_id, (_, why) in of_tests.items() if why}
        if self._unfollowed[None]:
            unfollowed[OUTSIDE] = "; ".join(self._unfollowed[None])
        return Followed(
            code=tuple(positions),
            cases={
                node_id: tuple(sorted(positions[code] for code in codes))
                for node_id, (codes, _) in of_tests.items()
            },
            outside=tuple(positions[code] for code in self._outside),
            acting=tuple(sorted(self._acting)),
            plain_classes=self._plain_classes(),
            opened={**opened, OUTSIDE: self._in_tree(self._opened[None])},
            unfollowed=unfollowed,
            fetched={
                OUTSIDE: tuple(sorted(self._fetched[None])),
                **{node_id: names for node_id, names in self._names.items() if node_id in node_ids},
            },
            read_by_plugins=self._in_tree(self._read_by_plugins),
            written=tuple(sorted(self._written)),
            sees_all_files=self._watched.is_complete,
            outside_packages=self._outside_packages(),
            compiles=any(name in sys.modules for name in _COMPILERS),
        )

    def _outside_packages(self) -> tuple[str, ...]:
        """Return the top-level modules that are not from the tree."""
        files = {
            name: getattr(module, "__file__", None)
            for name, module in [*sys.modules.items()]
            if "." not in name
        }
        return tuple(
            name
            for name, file in files.items()
            if (isinstance(file, str) and not file.startswith(self._prefix))
            or name in sys.builtin_module_names
        )

    def _plain_classes(self) -> dict[str, tuple[str, ...]]:
        """Return the classes of the tree whose definition calls nothing but ``type``."""
        names: dict[str, list[str]] = defaultdict(list)
        waiting: list[type] = [object]
        seen: set[type] = set()
        while waiting:
            cls = waiting.pop()
            subclasses: list[type] = type.__subclasses__(cls)
            waiting += [subclass for subclass in subclasses if subclass not in seen]
            seen.update(subclasses)
            file = getattr(sys.modules.get(cls.__module__), "__file__", None)
            if (
                type(cls) is type
                and isinstance(file, str)
                and file.startswith(self._prefix)
                and not _has_class_hook(cls)
            ):
                names[self._relative(file)].append(cls.__qualname__)
        return {path: tuple(sorted(listed)) for path, listed in names.items()}

    def _relative(self, path: str) -> str:
        """Return the path of a file in the tree without links, relative to the tree."""
        if path not in self._relatives:
            real = os.path.realpath(path)
            inside = real if real.startswith(self._prefix) else path
            self._relatives[path] = inside.removeprefix(self._prefix)
        return self._relatives[path]


def _resource_tracker() -> set[Any]:
    """Return the number of the process that counts resources of multiprocessing, if it runs."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    tracker = getattr(module, "_resource_tracker", None)
    return {getattr(tracker, "_pid", None)}


def _has_class_hook(cls: type) -> bool:
    """Whether the definition of a subclass calls code of a base class."""
    return any("__init_subclass__" in vars(base) for base in cls.__mro__ if base not in _HOOKLESS)


#: Classes whose hook for subclasses has no effect on others.
_HOOKLESS: frozenset[Any] = frozenset({object, Generic})


def _is_configuration(path: str) -> bool:
    """Whether a collector reads a file; what it finds there is compared."""
    name = os.path.basename(path)  # noqa: PTH119  # a Path costs more
    return name in CONFIGURATION_FILES or name in ASV_FILES


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}{os.sep}")


def _hash(code: CodeType) -> str:
    """Return a hash of what code does, without its place."""
    constants = [_hash(value) if isinstance(value, CodeType) else value for value in code.co_consts]
    content = (code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants)
    return hashlib.sha256(repr(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_python(event: str, arguments: Sequence[Any]) -> bool:
    """Whether an event tells that a process of Python is started, or one without a new program."""
    if event in ("os.fork", "os.forkpty"):
        return True
    return any("python" in str(argument) for argument in arguments[:2])


def _fixtures(item: pytest.Item) -> list[Any]:
    """Return the fixtures of a test, with those that it asks for while it runs."""
    info = getattr(item, "_fixtureinfo", None)
    requested = getattr(getattr(item, "_request", None), "_fixture_defs", {})
    of_names = [
        fixture
        for fixtures_of_name in (info.name2fixturedefs.values() if info else ())
        for fixture in fixtures_of_name
    ]
    return list(dict.fromkeys((*of_names, *requested.values())))


def _source_files(item: pytest.Item, fixtures: Sequence[Any]) -> set[str]:
    """Return the files with the code of a test and of its fixtures."""
    codes = (getattr(inspect.unwrap(fixture.func), "__code__", None) for fixture in fixtures)
    return {
        str(item.path),
        *(str(folder / "conftest.py") for folder in item.path.parents),
        *(code.co_filename for code in codes if code),
    }


def _process_count() -> str:
    """Return a number of the processes that multiprocessing has started.

    Those of its methods spawn and forkserver are no audit events.
    """
    module = sys.modules.get("multiprocessing.process")
    return repr(getattr(module, "_process_counter", itertools.count(1)))
