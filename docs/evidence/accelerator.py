"""Check mnistbench on a machine with a CUDA device, without a network.

It takes nine minutes at most; docs/evidence/accelerator.md describes it.

    bash docs/evidence/accelerator.sh prepare FOLDER --peer main.py  # where there is a network
    bash docs/evidence/accelerator.sh run OUT --carried FOLDER  # on the machine
    bash docs/evidence/accelerator.sh run OUT --carried FOLDER --device cpu  # anywhere

``prepare`` gathers what the machine may lack; on the CPU the tests of the GPU are left out. Parts
run one after the other, the cheap and important ones first, each with a limit and a log of its own.
OUT/summary.md is written after every part, so it is there whatever happens later. Uses the standard
library alone until the packages are known.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gzip
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = Path(__file__).resolve().parent

#: Time of all parts together, in seconds.
WHOLE_S = 540.0

#: A part that is stopped gets this time to report what it has, in seconds; then all its processes
#: are killed.
GRACE_S = 10.0

#: Longest wait for processes that were killed, in seconds: one that waits for a broken device may
#: never end.
KILL_S = 5.0

#: A gate gets this much less than its part as its budget, in seconds: it reports after the budget.
GATE_REPORTS_S = 20.0

#: Trials of the first stage of a gate: its default, with which it would run more to reach its
#: threshold.
TRIALS = 10

#: Results of parts.
OK = "ok"
FAILED = "failed"
UNDECIDED = "undecided"
SKIPPED = "skipped"
STOPPED = "stopped"
INTERRUPTED = "interrupted"
NOT_RUN = "not run"

#: Characters of a figure in the summary.
FIGURE_LENGTH = 400

#: Packages that are prepared unless others are named: pure Python, a few megabytes together. Those
#: that the machine has in a version that pyproject.toml allows are not installed.
PACKAGES = (
    "jinja2",
    "msgspec",
    "packaging",
    "platformdirs",
    "pytest-benchmark",
    "tabulate",
    "tensorboard",
)

#: Versions of manylinux whose wheels are accepted; pip matches each exactly.
PLATFORMS = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_24",
    "manylinux_2_17",
    "manylinux2014",
    "manylinux1",
)

#: Files of MNIST, as torchvision names them.
MNIST_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

#: pytest-benchmark warns if there is nothing to save, because every case failed: as an error it
#: would hide theirs.
NOTHING_SAVED = ("-W", "default::pytest_benchmark.logger.PytestBenchmarkWarning")

#: Why a dependency is not met.
NOT_INSTALLED = "is not installed"

#: What a gate needs of this repository.
MEASURED_FILES = ("mnistbench", "bench", "conftest.py", "pyproject.toml")


@dataclass(frozen=True)
class Part:
    """A command, its limits and what its output says."""

    name: str  # of its log
    what: str
    command: Callable[[float], Sequence[str]]  # gets its limit in seconds
    least_s: float  # parts before it leave it this time, which includes that to stop it
    most_s: float
    figure: Callable[[str], str]  # gets what it printed
    directory: Path = ROOT
    # By exit code; FAILED with any other.
    results: Mapping[int, str] = field(default_factory=lambda: {0: OK})
    needs_device: bool = True


@dataclass(frozen=True)
class Outcome:
    """What became of a part."""

    part: Part
    result: str = NOT_RUN
    seconds: float = 0.0
    figure: str = ""


@dataclass
class Run:
    """All parts of a run, and how they ended so far."""

    out: Path
    parts: Sequence[Part]
    environ: Mapping[str, str]
    heading: str
    deadline: float  # of the monotonic clock, in seconds
    outcomes: dict[str, Outcome] = field(default_factory=dict)  # by the name of the part

    def all(self) -> int:
        """Run every part.

        Return 0 if each was ok or skipped, 130 after Ctrl-C or SIGTERM, else 1.
        """
        self.write()
        try:
            for number, part in enumerate(self.parts):
                limit_s = limit_of(self.parts, number, self.deadline - time.monotonic())
                reason = self._why_not(part) or ("" if limit_s > 0 else "no time was left")
                if reason:
                    self._ends(Outcome(part, NOT_RUN, figure=reason))
                else:
                    self._run(part, limit_s)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        return 0 if {outcome.result for outcome in self.outcomes.values()} <= {OK, SKIPPED} else 1

    def write(self) -> None:
        """Write the summary of the parts that have ended."""
        rows = [self.outcomes.get(part.name, Outcome(part)) for part in self.parts]
        (self.out / "summary.md").write_text(summary(self.heading, rows), encoding="utf-8")

    def _why_not(self, part: Part) -> str:
        """Return why a part cannot be run, empty if it can: it needs a device that is not there."""
        environment = self.outcomes.get(ENVIRONMENT)
        return (
            environment.figure
            if environment and environment.result == FAILED and part.needs_device
            else ""
        )

    def _run(self, part: Part, limit_s: float) -> None:
        print(f"{part.name}: {part.what}, at most {limit_s:.0f} s", flush=True)
        began = time.monotonic()
        log = self.out / f"{part.name}.log"
        result = INTERRUPTED
        try:
            code = run(part.command(limit_s), log, self.environ, part.directory, limit_s)
            result = STOPPED if code is None else part.results.get(code, FAILED)
        except OSError as error:  # the program cannot be started
            with log.open("a", encoding="utf-8") as output:
                output.write(f"{error}\n")
            result = FAILED
        finally:
            text = log.read_text(encoding="utf-8", errors="replace")
            figure = part.figure(text) or last_line(text)
            if result == STOPPED:
                figure = f"at its limit of {limit_s:.0f} s: {figure}"
            elif result == OK and figure.startswith(SKIPPED):
                result = SKIPPED
            self._ends(Outcome(part, result, time.monotonic() - began, figure))

    def _ends(self, outcome: Outcome) -> None:
        self.outcomes[outcome.part.name] = outcome
        print(
            f"{outcome.part.name}: {outcome.result}, {outcome.seconds:.0f} s, {outcome.figure}",
            flush=True,
        )
        self.write()


def limit_of(parts: Sequence[Part], number: int, left_s: float) -> float:
    """Return the most seconds of a part.

    Its own most, or what is left without the least of the later parts.

    If less is left than all need at least, the part gets its own least, and the last parts have no
    time. The limit is shorter by the time that it may take to stop the part.
    """
    part = parts[number]
    later_s = sum(later.least_s for later in parts[number + 1 :])
    left_for_it_s = max(left_s - later_s, min(part.least_s, left_s))
    return min(part.most_s, left_for_it_s - GRACE_S - KILL_S)


def summary(heading: str, outcomes: Iterable[Outcome]) -> str:
    """Return the summary: a heading and a row for each part."""
    lines = [heading, "", "| part | result | seconds | figure | log |", "|---|---|---|---|---|"]
    for outcome in outcomes:
        figure = outcome.figure[:FIGURE_LENGTH].replace("|", "\\|")
        cells = (
            outcome.part.what,
            outcome.result,
            f"{outcome.seconds:.0f}",
            figure,
            f"{outcome.part.name}.log",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


# ---- Processes -----------------------------------------------------------------------------------


def run(
    command: Sequence[str], log: Path, environ: Mapping[str, str], directory: Path, limit_s: float
) -> int | None:
    """Run a command with its output in a log.

    Return its exit code, None if it was stopped at its limit.

    Afterwards all processes that descend from this one are killed: the next part must have the
    machine for itself.
    """
    with log.open("wb") as output:
        output.write(f"$ {shlex.join(command)}\n".encode())
        output.flush()
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which stops the part
        )
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            interrupt(process)
            return None
        except KeyboardInterrupt:
            interrupt(process)
            raise
        finally:
            kill_descendants()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(KILL_S)


def interrupt(process: subprocess.Popen[bytes]) -> None:
    """Stop a process as Ctrl-C does, and wait for it for a while.

    So pytest and the gate report what they have.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)


def supervise() -> None:
    """Let SIGINT and SIGTERM interrupt this process, and make it the parent of orphans.

    So orphans can be found.
    """
    # A script that starts this one may ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    set_child_subreaper = 36  # of prctl(2), Linux
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Kill all processes that descend from this one, those in other sessions too."""
    until = time.monotonic() + KILL_S
    while (numbers := list(descendants(os.getpid()))) and time.monotonic() < until:
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def descendants(ancestor: int) -> Iterator[int]:
    """Yield the numbers of the running processes that descend from a process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent = (
                stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
            )
            if state != "Z":  # it has ended, and its parent has not asked for its exit code
                children.setdefault(int(parent), []).append(int(stat.parent.name))
    waiting = [ancestor]
    while waiting:
        own = children.get(waiting.pop(), [])
        yield from own
        waiting.extend(own)


# ---- Figures -------------------------------------------------------------------------------------


def last_line(text: str) -> str:
    """Return the last line that is not empty; the first one is the command."""
    lines = [line.strip() for line in text.splitlines()[1:] if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def last_match(pattern: str, text: str) -> str:
    """Return the last match of a pattern, empty without one."""
    matches = re.findall(pattern, text, re.MULTILINE)
    return matches[-1] if matches else ""


def tests_figure(text: str) -> str:
    """Return how many tests passed, failed and were skipped; the reason if all were skipped."""
    counts = last_match(r"^=+ (.*(?:passed|failed|skipped|error).*) in .*=+$", text)
    counts = re.sub(r", \d+ deselected", "", counts)
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+: (.+)$", text, re.MULTILINE)
    return (
        f"{SKIPPED}: {reasons[0]} ({counts})"
        if reasons and not re.search("passed|failed|error", counts)
        else counts
    )


def suite_figure(results: Path, text: str) -> str:
    """Return the counts of the tests, and the median time of each training step.

    Without a training step it is the time of inference.
    """
    counts = tests_figure(text)
    try:
        benchmarks = json.loads(results.read_text(encoding="utf-8"))["benchmarks"]
        medians = {benchmark["name"]: benchmark["stats"]["median"] for benchmark in benchmarks}
    except (OSError, ValueError, KeyError):
        return counts
    steps = [name for name in medians if name.startswith("test_step")]
    shown = steps or [name for name in medians if name.startswith("test_forward")]
    return "; ".join([counts, *(f"{name} {1e3 * medians[name]:.3g} ms" for name in shown)])


def compiled_figure(results: Path, text: str) -> str:
    """Return the figure of a suite, and how its compiled cases are named.

    That is the number of rows of generated kernels, of names with a hash or the number of a graph,
    and whether CUDA graphs were used.
    """
    figure = suite_figure(results, text)
    try:
        benchmarks = json.loads(results.read_text(encoding="utf-8"))["benchmarks"]
        records = [benchmark["extra_info"]["mnistbench"] for benchmark in benchmarks]
        names = {
            name
            for record in records
            for table in record["tables"]
            if table["temperature"] == "warm"
            for name in json.loads(table["operations"])["name"]
        }
        graphs = {
            json.loads(record["compilation"])["cuda_graphs"] or "not asked for"
            for record in records
            if record.get("compilation")
        }
    except (OSError, ValueError, KeyError):
        return figure
    meaningless = [name for name in names if re.search(r"[a-z0-9]{40,}|graph_\d|\d+/\d+", name)]
    return "; ".join(
        [
            figure,
            f"{sum(name.startswith('fused ') for name in names)} names of fused kernels",
            f"{len(meaningless)} names without meaning",
            f"CUDA graphs {', '.join(sorted(graphs))}",
        ]
    )


def training_figure(note: str, text: str) -> str:
    """Return the seconds and the ratio of each way to train an epoch."""
    rows = re.findall(r"^\| (\w+) \| ([\d.]+ s) \| ([\d.]+) \|", text, re.MULTILINE)
    arms = ", ".join(f"{arm} {seconds} ({ratio})" for arm, seconds, ratio in rows)
    return "; ".join(filter(None, (arms or last_line(text), note)))


def gate_figure(text: str) -> str:
    """Return the sentence of a gate."""
    return last_match(r"^(?:passed|regressed|inconclusive): .*$", text)


# ---- Parts ---------------------------------------------------------------------------------------


#: Names of the parts; all others that need the device depend on ENVIRONMENT.
PREPARATION = "01-preparation"
ENVIRONMENT = "02-environment"
GPU_TESTS = "03-gpu-tests"
KEY_AVERAGES = "04-key-averages"
SUITE = "05-suite"
GATE_SAME = "06-gate-same"
GATE_INJECTED = "07-gate-injected"
TRAINING = "08-training"
SUITE_COMPILED = "09-suite-compiled"

#: In their order.
PARTS = (
    PREPARATION,
    ENVIRONMENT,
    GPU_TESTS,
    KEY_AVERAGES,
    SUITE,
    GATE_SAME,
    GATE_INJECTED,
    TRAINING,
    SUITE_COMPILED,
)


@dataclass(frozen=True)
class Choices:
    """What differs between an accelerator and the CPU, on which the same parts take longer."""

    suite: tuple[str, ...]  # arguments of pytest
    compiled: tuple[str, ...]
    gate: tuple[str, ...]
    injected: tuple[str, ...]
    arms: tuple[str, ...]  # of training.py, without the peer
    training: tuple[str, ...]  # more arguments of it


ON_CUDA = Choices(
    suite=("bench",),
    compiled=("bench/test_forward.py", "bench/test_step.py", "--bench-batch-size=1,64"),
    # The device limits this step. One that launches limit differs by up to 35 % from process to
    # process, which takes tens of trials to judge (accelerator.md).
    gate=("--bench-model=convnet", "--bench-batch-size=2048"),
    injected=("--bench-model=convnet", "--bench-batch-size=2048"),
    arms=("reference",),  # the fast step is for a CPU
    training=("--accelerator",),
)

_SHORT = ("--bench-model=lenet5", "--benchmark-max-time=0.2", "--benchmark-min-rounds=3")

ON_CPU = Choices(
    suite=("bench", "--bench-batch-size=16", *_SHORT),
    compiled=("bench/test_forward.py", "--bench-batch-size=16", *_SHORT),
    gate=("--bench-model=lenet5", "--bench-batch-size=1,2,4"),
    injected=("--bench-model=lenet5", "--bench-batch-size=4"),
    arms=("reference", "fast"),
    training=("--dry-run",),
)


@dataclass(frozen=True)
class Carried:
    """What was carried to the machine, or is there; None for what is missing."""

    folder: Path | None = None  # that ``prepare`` has made
    wheels: tuple[Path, ...] = ()
    raw: Path | None = None  # with the four files of MNIST, unpacked or as .gz
    peer: Path | None = None  # mnist/main.py of pytorch/examples


def parts_of(device: str, out: Path, scratch: Path, carried: Carried) -> list[Part]:
    """Return all parts in their order.

    First what the others depend on, then by what a minute of them tells.
    """
    choices = ON_CPU if device == "cpu" else ON_CUDA
    python = (sys.executable, "-P", "-m")
    script = (sys.executable, str(Path(__file__).resolve()))
    on_device = f"--bench-device={device}"
    suites = {name: out / name / "results.json" for name in (SUITE, SUITE_COMPILED)}

    def suite(name: str, arguments: Sequence[str]) -> Callable[[float], Sequence[str]]:
        saved = (f"--benchmark-json={suites[name]}", f"--bench-tensorboard={scratch / name}")
        return lambda _: (
            *python,
            "pytest",
            *arguments,
            on_device,
            *saved,
            *NOTHING_SAVED,
            "-v",
            "-p",
            "no:cacheprovider",
        )

    def gate(name: str, arguments: Sequence[str]) -> Callable[[float], Sequence[str]]:
        def command(limit_s: float) -> Sequence[str]:
            budget = f"--budget={max(1.0, limit_s - GATE_REPORTS_S):.0f}s"
            options = (
                f"--base={scratch / 'base'}",
                budget,
                f"--trials={TRIALS}",
                f"--storage={out / name}",
            )
            return (
                *python,
                "mnistbench",
                "gate",
                "--all-cases",
                *options,
                "--",
                "bench/test_step.py",
                on_device,
                *arguments,
            )

        return command

    def training(_: float) -> Sequence[str]:
        peer = (str(carried.peer),) if carried.peer and carried.raw else ()
        arms = ",".join(("peer", *choices.arms) if peer else choices.arms)
        dataset = "mnist" if carried.raw else "digits"
        options = ("--rounds=1", f"--arms={arms}", f"--dataset={dataset}", *choices.training)
        return (sys.executable, str(EVIDENCE / "training.py"), *peer, *options)

    notes = [] if carried.raw else ["on digits, because MNIST was not carried"]
    if not (carried.raw and carried.peer):
        notes.append(f"without the peer, which needs {'MNIST' if carried.peer else 'its main.py'}")
    if "--dry-run" in choices.training:
        notes.append("one step in place of an epoch")
    return [
        Part(
            PREPARATION,
            "what was carried, and copies for the gates",
            lambda _: (
                *script,
                "unpack",
                str(scratch),
                *(() if carried.folder is None else ("--carried", str(carried.folder))),
            ),
            least_s=25,
            most_s=60,
            figure=last_line,
            needs_device=False,
        ),
        Part(
            ENVIRONMENT,
            "machine and versions",
            lambda _: (*script, "environment", "--device", device),
            least_s=35,
            most_s=120,
            figure=last_line,
            needs_device=False,
        ),
        Part(
            GPU_TESTS,
            "tests of the GPU",
            lambda _: (*python, "pytest", "-m", "gpu", "tests/gpu", "-p", "no:cacheprovider"),
            least_s=40,
            most_s=130,
            figure=tests_figure,
        ),
        Part(
            KEY_AVERAGES,
            "`mnistbench trace` beside `key_averages()`",
            lambda _: (
                sys.executable,
                str(EVIDENCE / "key_averages.py"),
                str(out / KEY_AVERAGES),
                "--device",
                device,
            ),
            least_s=20,
            most_s=70,
            figure=last_line,
        ),
        Part(
            SUITE,
            "the suite",
            suite(SUITE, choices.suite),
            least_s=70,
            most_s=130,
            figure=partial(suite_figure, suites[SUITE]),
        ),
        Part(
            GATE_SAME,
            "gate, the same code on both sides",
            gate(GATE_SAME, choices.gate),
            least_s=110,
            most_s=200,
            figure=gate_figure,
            directory=scratch / "same",
            results={0: OK, 2: UNDECIDED},
        ),
        Part(
            GATE_INJECTED,
            "gate, the head's steps 5 % longer",
            gate(GATE_INJECTED, choices.injected),
            least_s=110,
            most_s=200,
            figure=gate_figure,
            directory=scratch / "slower",
            results={1: OK, 2: UNDECIDED},
        ),
        Part(
            TRAINING,
            "an epoch beside pytorch/examples",
            training,
            least_s=50,
            most_s=150,
            figure=partial(training_figure, ", ".join(notes)),
        ),
        Part(
            SUITE_COMPILED,
            "the suite with `--bench-compile=reduce-overhead`: names of kernels, CUDA graphs",
            suite(SUITE_COMPILED, (*choices.compiled, "--bench-compile=reduce-overhead")),
            least_s=50,
            most_s=WHOLE_S,
            figure=partial(compiled_figure, suites[SUITE_COMPILED]),
        ),
    ]


# ---- Commands ------------------------------------------------------------------------------------


def prepare(folder: Path, packages: Sequence[str], data: Path | None, peer: Path | None) -> int:
    """Gather what a machine without a network may lack.

    Wheels for Python 3.12 on x86-64 Linux, MNIST, the peer's program.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for earlier in wheels.glob("*.whl"):
        earlier.unlink()
    platforms = [word for name in PLATFORMS for word in ("--platform", f"{name}_x86_64")]
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--python-version=3.12",
        "--implementation=cp",
        *platforms,
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        *options,
        "-d",
        str(wheels),
        *packages,
    ]
    if subprocess.run(command, check=False).returncode:
        print(
            (
                "the wheels were not downloaded; PYTHON must name an interpreter with pip: "
                f"{sys.executable}"
            ),
            file=sys.stderr,
        )
        return 1
    if peer:
        shutil.copyfile(peer, folder / "main.py")
    raw = mnist_in(data) if data else None
    if raw:
        packed = folder / "MNIST" / "raw"
        packed.mkdir(parents=True, exist_ok=True)
        for name in MNIST_FILES:
            source = raw / name
            content = (
                source.read_bytes()
                if source.exists()
                else gzip.decompress(source.with_name(f"{name}.gz").read_bytes())
            )
            (packed / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files) / 2**20
    lacking = [
        text
        for text, is_there in (("MNIST (--data)", raw), ("the peer (--peer)", peer))
        if not is_there
    ]
    without = f", without {' and '.join(lacking)}" if lacking else ""
    print(f"{folder}: {len(files)} files, {size:.1f} MiB{without}")
    return 0


def mnist_in(folder: Path) -> Path | None:
    """Return the folder with the four files of MNIST, unpacked or as .gz.

    None if one is missing.
    """
    raw = folder / "MNIST" / "raw"
    are_there = all((raw / name).exists() or (raw / f"{name}.gz").exists() for name in MNIST_FILES)
    return raw if are_there else None


def carried_in(folder: Path | None) -> Carried:
    """Return what is in a prepared folder; without MNIST there, that of MNISTBENCH_DATA."""
    environ_data = os.environ.get("MNISTBENCH_DATA")
    places = [
        place for place in (folder, Path(environ_data).resolve() if environ_data else None) if place
    ]
    raw = next(filter(None, map(mnist_in, places)), None)
    if folder is None:
        return Carried(raw=raw)
    peer = folder / "main.py"
    return Carried(
        folder,
        tuple(sorted((folder / "wheels").glob("*.whl"))),
        raw,
        peer if peer.exists() else None,
    )


def unpack(scratch: Path, folder: Path | None) -> int:
    """Copy what the gates measure, unpack MNIST, and install the wheels that are needed."""
    copy_trees(scratch)
    carried = carried_in(folder)
    if carried.raw:
        unpacked = scratch / "MNIST" / "raw"
        unpacked.mkdir(parents=True)
        for name in MNIST_FILES:
            source = carried.raw / name
            if source.exists():
                (unpacked / name).symlink_to(source)
            else:
                (unpacked / name).write_bytes(
                    gzip.decompress(source.with_name(f"{name}.gz").read_bytes())
                )
    return install(scratch / "site", carried.wheels)


def install(site: Path, wheels: Sequence[Path]) -> int:
    """Install the wheels of packages that are missing here into a folder.

    So are those of a package whose version pyproject.toml does not allow.
    """
    reasons = unmet()
    needed = []
    for wheel in wheels:
        name = wheel.name.partition("-")[0].replace("_", "-").lower()
        if name in reasons or not is_installed(name):
            print(f"{name}: {reasons.get(name, NOT_INSTALLED)}")
            needed.append(wheel)
    code = 0
    if needed:
        options = ["--no-index", "--no-deps", "--no-compile", "--upgrade", "--target", str(site)]
        command = [sys.executable, "-m", "pip", "install", "--quiet", *options, *map(str, needed)]
        code = subprocess.run(command, check=False).returncode
    print(
        (
            f"{len(needed)} of {len(wheels)} wheels are needed: "
            f"{', '.join(wheel.name for wheel in needed) or 'none'}"
        ),
        flush=True,
    )
    return code


def unmet() -> dict[str, str]:
    """Return the dependencies of pyproject.toml that are not met here, with the reason."""
    from packaging.requirements import Requirement  # pytest needs it, too

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    reasons = {}
    for requirement in map(Requirement, project["dependencies"]):
        if not is_installed(requirement.name):
            reasons[requirement.name] = NOT_INSTALLED
        elif not requirement.specifier.contains(
            version := importlib.metadata.version(requirement.name), prereleases=True
        ):
            reasons[requirement.name] = (
                f"{version} is installed, and {requirement.specifier} is needed"
            )
    return reasons


def is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def environment(device: str) -> int:
    """Print the machine and the versions; return 1 if the device is not there."""
    import torch

    reasons = unmet()
    for name, why in reasons.items():
        print(f"{name}: {why}")
    if shutil.which("nvidia-smi"):
        quantities = (
            "name,driver_version,memory.total,power.limit,clocks.sm,clocks.mem,temperature.gpu"
        )
        subprocess.run(["nvidia-smi", f"--query-gpu={quantities}", "--format=csv"], check=False)
    subprocess.run([sys.executable, "-P", "-m", "mnistbench", "env"], check=False)
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    if reasons:
        versions += f", not as pyproject.toml asks: {', '.join(reasons)}"
    if device == "cpu":
        print(f"CPU in the place of an accelerator, {versions}", flush=True)
        return 0
    if not torch.cuda.is_available():
        print(f"torch sees no CUDA device, {versions}", flush=True)
        return 1
    print(f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, {versions}", flush=True)
    return 0


def run_parts(
    out: Path, folder: Path | None, device: str, seconds: float, names: Sequence[str]
) -> int:
    """Run the parts with these names; return the exit code."""
    deadline = time.monotonic() + seconds
    supervise()
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    command = f"accelerator.sh run --device {device}"
    heading = (
        f"# Accelerator\n\n{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, `{command}`, at most "
        f"{seconds:.0f} s."
    )
    with tempfile.TemporaryDirectory(prefix="accelerator-") as name:
        scratch = Path(name)
        carried = carried_in(folder.resolve() if folder else None)
        parts = [part for part in parts_of(device, out, scratch, carried) if part.name in names]
        for part in parts:
            (out / part.name).mkdir(exist_ok=True)
        code = Run(out, parts, environ_of(scratch, carried), heading, deadline).all()
        for folder_of_part in (out / part.name for part in parts):
            with contextlib.suppress(OSError):  # not empty
                folder_of_part.rmdir()
    print((out / "summary.md").read_text(encoding="utf-8"))
    return code


def copy_trees(scratch: Path) -> None:
    """Copy what a gate measures three times.

    The base, a head with the same code, and one with longer steps.
    """
    from gate_live import change

    for name in ("base", "same", "slower"):
        for source in map(ROOT.joinpath, MEASURED_FILES):
            target = scratch / name / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, target)
    change(scratch / "slower", "wait", 5)


def environ_of(scratch: Path, carried: Carried) -> dict[str, str]:
    """Return the environment of all parts.

    The installed wheels, this checkout, and MNIST.
    """
    paths = [str(scratch / "site"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
    }
    # Without bytecode each process compiles torch's sources again.
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    environ.pop("MNISTBENCH_DATA", None)
    if carried.raw:
        environ["MNISTBENCH_DATA"] = str(scratch)
    return environ


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser(
        "prepare", help="gather what a machine without a network may lack"
    )
    preparing.add_argument("folder", type=Path)
    preparing.add_argument(
        "--packages",
        nargs="+",
        default=PACKAGES,
        metavar="NAME",
        help="packages that the machine lacks",
    )
    preparing.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("MNISTBENCH_DATA"),
        help="folder with MNIST/raw (default: MNISTBENCH_DATA)",
    )
    preparing.add_argument("--peer", type=Path, help="mnist/main.py of pytorch/examples at 77f55b9")
    running = commands.add_parser("run", help="run all parts and write the summary")
    running.add_argument("out", type=Path)
    running.add_argument("--carried", type=Path, help="the prepared folder")
    running.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="cpu: try everything without an accelerator",
    )
    running.add_argument("--seconds", type=float, default=WHOLE_S)
    running.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, metavar="NAME", help=", ".join(PARTS)
    )
    unpacking = commands.add_parser("unpack", help="a part of run")
    unpacking.add_argument("scratch", type=Path)
    unpacking.add_argument("--carried", type=Path)
    describing = commands.add_parser("environment", help="a part of run")
    describing.add_argument("--device", default="cuda")
    settings = parser.parse_args(arguments)
    if settings.command == "prepare":
        if settings.data and not mnist_in(settings.data):
            preparing.error(
                f"--data: {settings.data} has no folder MNIST/raw with {', '.join(MNIST_FILES)}, "
                "unpacked or as .gz"
            )
        return prepare(settings.folder, settings.packages, settings.data, settings.peer)
    if settings.command == "run":
        if settings.carried and not settings.carried.is_dir():
            running.error(f"--carried: {settings.carried} is not a folder; make it with prepare")
        return run_parts(
            settings.out, settings.carried, settings.device, settings.seconds, settings.parts
        )
    if settings.command == "unpack":
        return unpack(settings.scratch, settings.carried)
    return environment(settings.device)


if __name__ == "__main__":
    sys.exit(main())
