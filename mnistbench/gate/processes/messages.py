"""What the gate and the process of a side say to each other: one job, then messages.

Each is a JSON object on a line. The gate writes a :class:`Job` to the input of the process, which
answers on its output with messages of one key, whose values are the other classes here:

============== ===================================================================================
``SurveyJob``  ``selected`` (if the job asks for it); of a shard ``collected`` with its tests,
               after which the gate writes those to run; ``case`` as in a trial; ``surveyed``
``CollectJob`` ``collected`` with the hash of the parameters of each test
``TrialJob``  ``ready`` when the side is loaded, after which the gate writes ``go``; ``case`` with
               the number of each case before it is measured, and that of all; ``result``
``CaptureJob`` ``captured``
============== ===================================================================================

At any time a process sends ``at`` (what it does now) and ``alive``. ``error`` or ``peer_error`` is
its last message. All other output of a side goes to the log.

The process of a side loads this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from mnistbench.gate.listing import Listing, Listings
from mnistbench.gate.processes.sides.stray import Imports


class Efforts(NamedTuple):
    """Factors of the numbers of iterations in a trial."""

    timed: float
    profiled: float


#: Of a trial with all iterations.
ALL_ITERATIONS = Efforts(1.0, 1.0)


@dataclass(frozen=True)
class Spent:
    """The time that a trial took for a case."""

    seconds: float  # with the fixtures before it, but those of the first case
    efforts: Efforts  # numbers of iterations that it made / those of ALL_ITERATIONS
    timed_s: float  # of the timed iterations, seconds
    profiled_s: float  # of the profiled iterations, seconds


# ---- Jobs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Which cases are measured; a survey of the head chooses them, and sends them: ``selected``."""

    arguments: tuple[str, ...]  # for pytest
    phases: tuple[str, ...] = ()  # all if empty


@dataclass(frozen=True, kw_only=True)
class Job:
    """What all jobs of the process of a side have."""

    side: str  # BASE or HEAD
    tree: str  # folder of the side's copy
    directory: str  # in it: where pytest runs
    home: str  # folder of the gate's copies of packages
    repository: str  # the user's own tree, which must not be measured
    arguments: Sequence[str]  # for pytest
    phases: Sequence[str]  # to measure; all if empty
    threads: int  # of all cases; 0: each case has its own number
    seed: int  # of all that both processes draw
    gate: int = 0  # number of the gate's process, with which this one ends; 0: none


@dataclass(frozen=True, kw_only=True)
class CollectJob(Job):
    """Collect the tests of a side, and run none of them."""


@dataclass(frozen=True, kw_only=True)
class SurveyJob(Job):
    """List the cases of a side, with what each is and runs."""

    only: Sequence[str] | None = None  # node ids of the cases; all if None
    # The process chooses arguments and phases, with these paths if the arguments have none.
    selects: bool = False
    paths: Sequence[str] = ()
    is_shard: bool = False  # the process sends its tests, and gets those to run
    follows_code: bool = True  # note which of the tree's code each test runs
    differing: Sequence[str] = ()  # files that differ between the trees, relative to them
    # Files that are the other side's. What this side cannot run of them does not fail.
    carried: Sequence[str] = ()
    # A case whose first call takes longer cannot be measured in the budget, seconds; 0: no budget.
    longest_call_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class TrialJob(Job):
    """Measure a side in turn with the process of the other side."""

    only: Sequence[str] | None = None  # node ids of the cases; all if None
    in_order: bool = False  # the cases run in the order of ``only``, not in a random one
    peer: int  # descriptor of the socket to the other process
    patience_s: float  # longest time to wait for the other process, seconds
    cores: Sequence[int] = ()  # to use; empty if a process cannot choose
    frameworks: Sequence[str] = ()  # to import before the session: both sides use them
    parallel: Sequence[str] = ()  # node ids of cases that use more than one core
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the survey, by node id
    efforts: Sequence[float] = ALL_ITERATIONS
    touched_bytes: int = 0  # of the heap, before the process measures
    compiled_anew: Sequence[str] = ()  # node ids of cases that are called with an empty cache, too
    collects_paths: bool = False  # in place of times: the call paths of each case


@dataclass(frozen=True, kw_only=True)
class CaptureJob(Job):
    """Describe calls of operations, for scripts that reproduce them."""

    framework: str  # whose operations they are
    # Objects with ``script`` (name of the file without its suffix), ``case`` (node id), ``rows``
    # (keys of the operation table) and ``iterations``, of which so many precede the captured ones.
    wanted: Sequence[Mapping[str, Any]]
    values: str  # folder for values that a script reads


_JOBS = {job.__name__: job for job in (CollectJob, SurveyJob, TrialJob, CaptureJob)}


def line_of(job: Job) -> str:
    """Return the line by which a process gets a job."""
    return json.dumps({"job": type(job).__name__, **asdict(job)})


def job_of(line: str) -> Job:
    """Return the job of a line."""
    fields = json.loads(line)
    return _JOBS[fields.pop("job")](**fields)


# ---- Answers -------------------------------------------------------------------------------------

#: Key of what happens outside of tests, beside node ids.
OUTSIDE = ""


class RunCode(NamedTuple):
    """A code object."""

    path: str  # relative to the tree; empty if the program has made it
    name: str  # qualified
    line: int  # the first one


@dataclass(frozen=True)
class Followed:
    """What ran in the survey of a side, and which files of its tree were opened."""

    # Of files of the tree, and with an empty path code that the program has made. Its name ends
    # with a hash of what it does.
    code: tuple[RunCode, ...] = ()
    # Node id -> positions of what its test and its fixtures ran.
    cases: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Positions of what ran outside of tests and fixtures, in the order in which it first ran.
    outside: tuple[int, ...] = ()
    # File and line of the statements at whose import a function ran.
    acting: tuple[tuple[str, int], ...] = ()
    # File -> qualified names of its classes that are made by ``type`` alone.
    plain_classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Node id -> files and folders of the tree that its test and its fixtures have opened; OUTSIDE
    # -> those that were opened before or between the tests.
    opened: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Node id or OUTSIDE -> names of attributes that code of the tree has got by ``getattr``, and
    # names in code that was made.
    fetched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Node id or OUTSIDE -> why not all of its code could be followed.
    unfollowed: Mapping[str, str] = field(default_factory=dict)
    # Files with configuration that installed packages have read outside of tests.
    read_by_plugins: tuple[str, ...] = ()
    written: tuple[str, ...] = ()  # files outside of the tree that were opened to be written
    # Whether the differing files were watched, so that a file that nobody opens is known.
    sees_all_files: bool = True
    outside_packages: tuple[str, ...] = ()  # top names of imported modules that are not of the tree
    compiles: bool = False  # whether a compiler of functions was imported, which hides their code


@dataclass(frozen=True)
class Surveyed:
    """The end of a survey: ``surveyed``."""

    listing: Listing
    imports: Imports
    longest_s: float  # of loading and each test, seconds
    followed: Followed = field(default_factory=Followed)


@dataclass(frozen=True)
class Surveys:
    """What the surveys of both sides have sent."""

    listings: Listings
    imports: Mapping[str, Imports]  # by side
    followed: Mapping[str, Followed]  # by side


@dataclass(frozen=True)
class SideResult:
    """The end of a trial: ``result``."""

    side: str
    cases: Mapping[str, tuple[Mapping[str, Any], ...]]  # node id -> columns of each build
    spent: Mapping[str, Spent]  # by node id
    seconds: float  # of all cases
    # Name of a one-time cost -> node id or ALL_CASES -> CPU time in ns; of RESIDENT bytes.
    once: Mapping[str, Mapping[str, int]]
    unmeasurable: Mapping[str, str]  # node id of a case that was not found again -> why
