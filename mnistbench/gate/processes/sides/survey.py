"""Survey one side: its cases, the code that each runs, its memory, and a quick look at its time."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.metadata
import json
import math
import platform
import statistics
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from mnistbench import __version__
from mnistbench.core import units
from mnistbench.core.machine import (
    ended_children_s,
    peak_resident_bytes,
    reset_peak_resident,
    resident_bytes,
    running_children,
)
from mnistbench.gate.listing import ListedCase, Listing
from mnistbench.gate.processes.following.follower import Follower
from mnistbench.gate.processes.following.outliving import Watch
from mnistbench.gate.processes.messages import CollectJob, Selection, Surveyed, SurveyJob
from mnistbench.gate.processes.sides.case import PlainCase, SideCase
from mnistbench.gate.processes.sides.fingerprint import fingerprint, type_name
from mnistbench.gate.processes.sides.session import TakenCase, paths_among, run_tests
from mnistbench.gate.processes.sides.side import CaseError, Side, SideError
from mnistbench.gate.processes.sides.steps import SideRun, rehearse
from mnistbench.gate.words import (
    ALL_CASES,
    BASE,
    DEFAULT_FOLDERS,
    HEAD,
    IMPORT,
    PYTHON,
    SETUP,
)
from mnistbench.measuring.calls import close_unrun, only_created
from mnistbench.measuring.provider import imported_provider
from mnistbench.measuring.timing import Clock, clocked

#: Measured if the user names no tests: the cases of this phase.
DEFAULT_PHASE = "step"


def survey(job: SurveyJob, say: Callable[..., None], lines: IO[str]) -> None:
    """Send the arguments that select the cases, then the listing of the side.

    It sends the arguments only if the job asks for them.

    For a shard, the survey sends the tests that it has collected, and runs those of them that the
    next line of input names.
    """
    # Before setuptools, if a test imports it, adds its own copies of packages to sys.path.
    installed = packages()
    side = Side.of(job, say)
    follower = Follower(
        side.tree, side.case_id, follows_code=job.follows_code, differing=job.differing
    )
    side.carried = frozenset(job.carried)
    side.plugins.append(follower)
    side.importing = follower.importing
    arguments = [*job.arguments]
    phases = [*job.phases]
    if job.selects:
        arguments, phases = selection(side, arguments, [*job.paths])
        say(selected=asdict(Selection(tuple(arguments), tuple(phases))))
    surveyed = _Survey(side, phases, follower, say, job.longest_call_s or math.inf)

    def selected(node_ids: list[str]) -> list[str]:
        surveyed.loading_s = Clock.cpu_ns() / 1e9
        surveyed.importing_ns = side.once[IMPORT].get(ALL_CASES, 0)
        surveyed.framework_ns = side.framework_ns
        kept = [node_id for node_id in node_ids if job.only is None or node_id in job.only]
        if job.is_shard:
            say(collected=kept)
            own = {*json.loads(lines.readline())}
            kept = [node_id for node_id in kept if node_id in own]
        surveyed.number_of_tests = len(kept)
        return kept

    side.count_imports()
    follower.begin()
    try:
        failed = run_tests(side, arguments, selected, surveyed.take)
    except SideError as error:
        refuse_old_framework(side.name)
        if outside := side.outside():
            name = min(outside)  # a package before its modules
            raise SideError(
                f"{error}; it imports {name} from {outside[name].path}, not from its own copy"
            ) from error
        raise
    # An asv benchmark may say that it is skipped when it is called.
    failed = {
        test: why for test, why in surveyed.failed.items() if test not in side.left_out
    } | failed
    if failed:
        refuse_old_framework(side.name)
    not_run = {test: why for test, why in failed.items() if test in side.tests_carried}
    failed = {test: why for test, why in failed.items() if test not in not_run}
    for node_id, case in surveyed.cases.items():
        case.sources = follower.sources[node_id]
        case.parameters = side.parameters[node_id]
        case.op_fail, case.case_fail = side.thresholds.get(node_id, ((), ""))
        case.setup_s = side.once[SETUP].get(node_id, 0) / 1e9
    provider = imported_provider()
    listing = Listing(
        cases={
            node_id: case
            for node_id, case in surveyed.cases.items()
            if node_id not in side.left_out and node_id not in failed and node_id not in not_run
        },
        failed=failed,
        cannot_run={**side.cannot_run, **not_run},
        packages=installed,
        frameworks={provider.framework: provider.version()} if provider.framework else {},
        threads=side.threads,
        left_out=side.left_out,
        unmeasurable=surveyed.unmeasurable,
        resident=surveyed.peak_bytes(),
        growth_bytes=surveyed.growth_bytes(),
        loading_s=surveyed.loading_s,
        importing_s=surveyed.importing_ns / 1e9,
        framework_s=surveyed.framework_ns / 1e9,
        loaded_bytes=surveyed.loaded_bytes or 0,
        cpu=surveyed.cpu,
        missing=side.missing,
        loaded=loaded_packages(sys.modules.keys() - follower.plugins),
    )
    followed = follower.followed(listing.cases)
    say(surveyed=asdict(Surveyed(listing, side.imports(), follower.longest_s, followed)))


def collect(job: CollectJob, say: Callable[..., None]) -> None:
    """Send which tests pytest collects in this process, with the hash of the parameters of each.

    Run none of them.
    """
    side = Side.of(job, say)

    def none(_: list[str]) -> list[str]:
        say(collected=side.parameters)
        return []

    run_tests(side, job.arguments, none, lambda _: None)


def refuse_old_framework(side: str) -> None:
    """Check the version of the framework that this process has imported, if any.

    Raises:
        SideError: it cannot be measured.
    """
    if why := imported_provider().why_refused():
        option = {BASE: "--base-python", HEAD: "--head-python"}[side]
        raise SideError(
            f"{side}: {why}; install a newer one there, or name another interpreter with {option}"
        )


def packages() -> dict[str, str]:
    """Return the versions of the installed distributions.

    Python imports the first of two with one name.

    mnistbench has its own version where it is not installed, because its copy is used there. Python
    is one of them.
    """
    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        metadata = distribution.metadata  # parses the file each time
        if "Name" in metadata:
            versions.setdefault(metadata["Name"], metadata["Version"])
    return {PYTHON: platform.python_version(), "mnistbench": __version__, **versions}


def loaded_packages(modules: Collection[str]) -> tuple[str, ...]:
    """Return the installed distributions of these modules, without plug-ins of pytest."""
    names = {name.partition(".")[0] for name in modules}
    distributions_of = importlib.metadata.packages_distributions()
    imported = {distribution for name in names for distribution in distributions_of.get(name, ())}
    plugins = {
        point.dist.name for point in importlib.metadata.entry_points(group="pytest11") if point.dist
    }
    return tuple(sorted(imported - plugins))


def selection(side: Side, arguments: list[str], default: list[str]) -> tuple[list[str], list[str]]:
    """Return pytest's arguments and the phases to measure.

    The user's if they contain a path, else the default ones.

    Args:
        side: its pytest decides which arguments are paths.
        arguments: the user's arguments for pytest.
        default: paths whose cases are measured by default, of DEFAULT_FOLDERS those of
            DEFAULT_PHASE; the whole project if there are none.
    """
    phases = [DEFAULT_PHASE] if {*default} <= {*DEFAULT_FOLDERS} else []
    whole = [*default, *arguments]
    paths = paths_among(side, whole) if arguments else default
    if paths is None and default:  # perhaps because of the conftest.py of the default folder
        paths = [*default, *(paths_among(side, arguments) or ())]
    return (whole, phases) if paths is None or paths == default else (arguments, [])


class _Survey:
    def __init__(
        self,
        side: Side,
        phases: Sequence[str],
        follower: Follower,
        say: Callable[..., None],
        longest_call_s: float = math.inf,
    ) -> None:
        self._longest_call_s = longest_call_s
        self._side = side
        self._say = say
        self._begun = 0  # tests so far
        self.number_of_tests = 0  # known when they are collected
        self._phases = phases
        self._follower = follower
        self._watch = Watch()
        self._compile_ns: Callable[[], int] = lambda: 0  # what the running case has been compiled
        self.cases: dict[str, ListedCase] = {}  # by node id
        self.unmeasurable: dict[str, str] = {}  # node id -> why
        self.failed: dict[str, str] = {}  # node id of a case whose later calls fail -> why
        self.cpu: Mapping[str, str] = {}
        self.loading_s = 0.0  # CPU time until the tests were collected
        self.importing_ns = 0  # of it that of the import of the project's modules
        self.framework_ns = 0  # of that the imports of frameworks
        self.loaded_bytes: int | None = None  # resident memory before the first case
        self._peak_bytes = 0  # of resident memory, before the system has forgotten it
        # Of tensors, before the first case of a workload was built.
        self._imported_bytes: int | None = None

    def take(self, case: TakenCase) -> None:
        """Build and run a case, and store a failure."""
        refuse_old_framework(self._side.name)
        self._begun += 1
        self._say(case=(self._begun, max(self._begun, self.number_of_tests)))
        if not case.is_selected(self._phases):
            return
        if self.loaded_bytes is None:
            self.loaded_bytes = resident_bytes()
        listed = self.cases[case.node_id] = ListedCase(case.label, dict(vars(case.params)))
        side_case = case.make()
        try:
            with self._follower.compiled():
                with imported_provider().compile_clock() as self._compile_ns:
                    if case.is_plain:
                        if why := self._call(side_case, listed):
                            self.unmeasurable[case.node_id] = why
                            del self.cases[case.node_id]
                            return
                    else:
                        self._measure_memory(side_case, listed)
                self._find_paths(side_case, listed)
        except CaseError as error:
            self.failed[case.node_id] = error.why
            del self.cases[case.node_id]
            return
        self._follower.follow_eagerly(side_case.result if case.is_plain else side_case)

    def growth_bytes(self) -> int:
        """Return by how many bytes the process grew while its cases ran; 0 if that is unknown."""
        return self.peak_bytes() - self.loaded_bytes if self.loaded_bytes else 0

    def peak_bytes(self) -> int:
        """Return the peak resident memory of the process."""
        return max(self._peak_bytes, peak_resident_bytes())

    def _call(self, case: PlainCase, listed: ListedCase) -> str:
        """Run a plain test's function twice, to see what it changes and what it returns.

        It runs once if the budget does not allow for measuring the test.

        Return why it cannot be measured; empty if it can.
        """
        with self._side.errors_named():
            case.build()
            before = case.arguments()
            first = case.result()
            first_ns = case.took_ns
            if case.once:  # later calls may find its work done
                with self._follower.paused():
                    listed.look_loops = _Look.of(first_ns).in_loops
                listed.look_ns = first_ns
            else:
                listed.compile_ns = self._compile_ns()
            if why := only_created(first):
                close_unrun(first)
                return why
            if first_ns > 1e9 * self._longest_call_s:
                listed.seconds = 2 * first_ns / 1e9
                listed.uncompared = "takes too long for the budget to be called twice"
                return ""
            after = case.arguments()
            # A call that is made once counts with what it costs to follow it, as the first one.
            with contextlib.nullcontext() if case.once else self._follower.paused():
                self._peak_bytes = self.peak_bytes()
                before_bytes = 0 if case.once else reset_peak_resident()
                second, listed.parallel = self._second_result(case)
                if before_bytes:
                    listed.peak_bytes = max(0, peak_resident_bytes() - before_bytes)
            listed.outlives = case.outlives
            listed.seconds = 2 * case.took_ns / 1e9  # the first call may load or compile
            first_print = fingerprint(first)
            second_print = fingerprint(second)
            if not case.once:
                self._look(case, listed)
        notes = (
            ["uses more than one core, so it is measured on all cores by wall time"]
            if listed.parallel
            else []
        )
        is_comparable = not (before.is_timed_out or after.is_timed_out)
        if case.can_loop and is_comparable and before.digest != after.digest:
            notes.append(
                "changes its arguments, so each call gets what the one before has left; "
                "make them anew with benchmark.pedantic(setup=...), or in setup with number = 1 "
                "if it is an asv benchmark"
            )
        if (
            case.once
            and case.took_ns < first_ns * _MUCH_LESS
            and first_ns - case.took_ns > _MIN_SAVED_NS
        ):
            took = f"{units.duration(case.took_ns)} instead of {units.duration(first_ns)}"
            notes.append(
                f"asks for one round, and its second call took {took}, so only its first "
                "iteration counts"
            )
        listed.note = "; ".join(notes)
        kinds = type_name(first), *(name.rpartition(".")[2] for name in first_print.unread_types)
        listed.returns = " of ".join(dict.fromkeys(kinds))
        if read := next((read for read in (first_print, second_print) if read.unread), None):
            limit = [read.limit] if read.limit else []
            listed.uncompared = f"returns {', '.join([*read.unread_types[:3], *limit])}"
        elif first_print.digest != second_print.digest:
            listed.uncompared = "returns something else at each call"
        else:
            listed.result = first_print.digest
        return ""

    def _second_result(self, case: PlainCase) -> tuple[Any, bool]:
        """Call a function again; return the result, and whether it ran in parallel."""
        for _ in _until_compiled():
            result = _with_parallelism(functools.partial(case.result, self._watch))
        return result

    def _look(self, case: PlainCase, listed: ListedCase) -> None:
        """Note the time of a few calls after the second one; that of a long call is enough."""
        with self._follower.paused():
            began_ns = Clock.wall_ns() - case.took_ns
            looks = [_Look.of(case.took_ns)]
            if case.took_ns < _LONG_CALL_NS:  # to watch the call took a part of its time
                looks.clear()
            if case.can_loop:
                case.loops = max(1, round(_LOOK_SAMPLE_NS / max(1, case.took_ns)))
            while not _is_enough(len(looks), Clock.wall_ns() - began_ns):
                case.prepare()
                sample_ns = case.clocked().alone_ns
                case.finish()
                looks.append(_Look.of(sample_ns, case.loops))
            case.loops = 1
        listed.look_ns = max(1, round(min(look.call_ns for look in looks)))
        listed.look_loops = statistics.median(look.in_loops for look in looks)

    def _measure_memory(self, case: SideCase, listed: ListedCase) -> None:
        if self._imported_bytes is None:
            self._imported_bytes = imported_provider().allocated_bytes()
            gc.collect()
            gc.freeze()  # so that the search for tensors skips all imported objects
            rehearse(SideRun(self._side, case))
        for _ in _until_compiled():
            listed.memory, listed.seconds = self._peak_memory(case)
            listed.compile_ns = listed.compile_ns or self._compile_ns()
        if case.has_operations:  # else an epoch, which would double the time of the survey
            with self._side.errors_named():
                times_ns = [clocked(case).alone_ns for _ in range(_LOOK_ITERATIONS)]
            listed.look_ns = max(1, min(times_ns))
        if listed.memory is not None and listed.params["device"] == "cpu":
            listed.memory += self._imported_bytes

    def _peak_memory(self, case: SideCase) -> tuple[int | None, float]:
        """Return the peak memory of tensors of a case, in bytes, and the seconds that it took."""
        began_ns = Clock.wall_ns()
        with self._side.errors_named():
            memory = case.peak_memory()
        return memory, (Clock.wall_ns() - began_ns) / 1e9

    def _find_paths(self, case: SideCase, listed: ListedCase) -> None:
        """Call a case on a CPU once more, to see which implementations of a library run in it."""
        listed.facts = case.facts()
        provider = imported_provider()
        if not provider.framework or case.device != "cpu":
            return
        self.cpu = self.cpu or provider.cpu_paths()
        with self._side.errors_named():
            case.prepare()
            listed.implementations = provider.implementations_of(case)
            case.finish()


#: Most calls until one compiles nothing: after 8 compilations for other values, Dynamo runs a
#: function as it is written (``torch._dynamo.config.recompile_limit``).
_MAX_COMPILING_CALLS = 10

#: Fewest and most samples of the quick look at a plain test.
_MIN_LOOKS = 3
_MAX_LOOKS = 10
#: Nanoseconds that the calls of a short function fill in a sample.
_LOOK_SAMPLE_NS = 100_000
#: Nanoseconds after which the fewest samples are enough.
_LOOK_ENOUGH_NS = 2_000_000
#: Nanoseconds after which any number of samples is enough.
_LOOK_NS = 50_000_000
#: The second call counts as a sample if it takes so long.
_LONG_CALL_NS = 1_000_000
#: A sample of so many nanoseconds is compared with one run of a loop, a longer one with more.
_SAMPLE_OF_A_LOOP_NS = 1_000_000
_MAX_LOOPS = 100
#: Iterations of a workload in a quick look.
_LOOK_ITERATIONS = 3

#: Share of CPU time that other threads have in a call on several cores.
_OF_OTHER_THREADS = 0.1
#: Shortest CPU time of other threads that counts, in nanoseconds.
_MIN_OF_OTHER_THREADS_NS = 1_000_000
#: Shortest time by which a second call is quicker because its work is done, in nanoseconds.
_MIN_SAVED_NS = 1_000_000

#: Share of the first call that a second one takes at most if it finds its work done. A first call
#: is often longer by less.
_MUCH_LESS = 1 / 3


def _until_compiled() -> Iterator[None]:
    """Yield until the body compiles nothing: a trial finds what the survey has compiled."""
    for _ in range(_MAX_COMPILING_CALLS):
        compilations = imported_provider().compilations()
        yield
        if imported_provider().compilations() == compilations:
            return


class _NumberAndText(NamedTuple):
    number: int
    text: str


def _loop() -> None:
    """Run what interpreted programs do, for some 25 microseconds.

    A program slows down otherwise than a loop that only counts, while another one uses its caches.
    """
    for _ in range(400):
        pass
    pairs = dict[str, _NumberAndText]()
    for number in range(25):
        text = str(number)
        pairs[text] = _NumberAndText(number, text)
        if isinstance(text, str) and text in pairs:
            text.join(("x", "y")).partition(text)


class _Look(NamedTuple):
    """A sample of a quick look."""

    call_ns: float
    in_loops: float  # the time of the call / that of a loop after it

    @classmethod
    def of(cls, sample_ns: int, calls: int = 1) -> Self:
        """Return the look at a sample that has just been taken."""
        loops = 1 + min(_MAX_LOOPS, sample_ns // _SAMPLE_OF_A_LOOP_NS)
        loop_ns = statistics.median(clocked(_loop).alone_ns for _ in range(loops))
        return cls(sample_ns / calls, sample_ns / calls / loop_ns)


def _is_enough(looks: int, elapsed_ns: int) -> bool:
    """Whether a quick look has enough samples."""
    if looks >= _MIN_LOOKS and elapsed_ns > _LOOK_ENOUGH_NS:
        return True
    return looks >= _MAX_LOOKS or (looks > 0 and elapsed_ns > _LOOK_NS)


def _with_parallelism(work: Callable[[], Any]) -> tuple[Any, bool]:
    """Return the result of a call, and whether it runs in parallel.

    It uses more than one core, or threads or processes of its own.
    """
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    children = _work_of_children()
    threading.Thread.start = counted  # type: ignore[assignment, method-assign]
    try:
        before_ns = Clock.cpu_ns(), Clock.thread_ns()
        result = work()
        cpu_ns = Clock.cpu_ns() - before_ns[0]
        own_ns = Clock.thread_ns() - before_ns[1]
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]
    others_worked = cpu_ns - own_ns > max(_OF_OTHER_THREADS * cpu_ns, _MIN_OF_OTHER_THREADS_NS)
    return result, others_worked or bool(started) or _work_of_children() != children


def _work_of_children() -> tuple[float, dict[int, list[str]]]:
    """Return the CPU time of ended child processes, and that of each running one.

    The former is in seconds, the latter in the system's units.

    Source: proc_pid_stat(5), fields 14 and 15. Of a system without /proc only ended processes are
    known.
    """
    ended_s = ended_children_s()
    running = dict[int, list[str]]()
    for child in running_children():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            running[child] = (
                Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[11:13]
            )
    return ended_s, running
