"""Whether tables and gates of compiled models name what a person can change.

    python3.13 docs/evidence/compiled.py check [--inductor]
    python3.13 docs/evidence/compiled.py identities --results FILE
    python3.13 docs/evidence/compiled.py injections --results FILE
    python3.13 docs/evidence/compiled.py same-code --results FILE [--number 20]
    python3.13 docs/evidence/compiled.py cost --results FILE [--number 5]

Each command makes a git project from compiled_project, with four compiled models and a compiled
function, in a temporary folder or in ``--folder``.

``check`` applies each change of compiled_injections.toml, runs the model without the compiler, and
compares what the compiler captures with what it captures of the base. With ``--inductor`` it
compiles both as the suite does, and compares the numbers of kernels.

``identities`` runs the suite in five processes and on five commits that leave the models as they
are, and compares the rows of their operation tables with those of the first run.

``injections`` runs ``mnistbench gate --base HEAD~1`` for each change, and looks for the injected
line among the likely causes.

``same-code`` runs gates over commits that change comments only, each of one case in turn.

``cost`` runs the gate over one change, with compiled and with uncompiled models in turn.

Each run appends a JSON line to FILE, also if it failed; the next call measures what is missing in
the file or failed, and prints the table of all. ``--only TEXT`` runs what has this text in its
name.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mnistbench.judging.verdicts import REGRESSED
from mnistbench.saved_runs.storage import Storage

TEMPLATE = Path(__file__).with_name("compiled_project")
INJECTIONS = Path(__file__).with_name("compiled_injections.toml")

#: Stands in a replacement for the text that is replaced.
OLD = "<old>"

#: Branch of the project without changes.
BASE = "base"

#: Options of each gate.
OPTIONS = ("--threshold", "5%")

#: Steps of a model in ``check``: so many that a changing value compiles it again.
STEPS = 6

#: The plain benchmark, as ``-k`` selects it.
PLAIN = "similarity"

#: What no name may have, because it differs between runs or names nothing: a hash of inductor, and
#: the running number of a graph or of a compiled region of the process.
MEANINGLESS = re.compile(r"[a-z0-9]{40,}|graph_\d|Region: \d")

#: Largest difference of the sum of the rows and the iteration, as a share.
SUM_LIMIT = 0.02

#: A line of a file as causes name it: models.py:13.
PLACE = re.compile(r"([\w./-]+\.py):(\d+)")

#: Change that ``cost`` measures.
COST_INJECTION = "extra layer norm"

#: A change: path, text that is there once, and its replacement. A new file has no text.
Edits = Sequence[tuple[str, str, str]]

#: Lines of Block with a local variable.
_RENAMED = """\
        hidden = self.wide(self.norm2(tokens))
        hidden = functional.gelu(hidden)
        return tokens + self.narrow(hidden)
"""

#: Commits that leave the models as they are.
UNRELATED: Mapping[str, Edits] = {
    "comment": [("models.py", "class Block(nn.Module):", f"# Pre-norm, as in GPT-2.\n{OLD}")],
    "unused function": [
        (
            "models.py",
            "class Transformer(nn.Module):",
            f"def half(tokens: Tensor) -> Tensor:\n    return tokens * 0.5\n\n\n{OLD}",
        )
    ],
    "unused module": [("helpers.py", "", "def number() -> int:\n    return 1\n")],
    "renamed variable": [
        (
            "models.py",
            _RENAMED,
            _RENAMED.replace("hidden", "inner"),
        )
    ],
    "new test": [
        ("bench/test_sum.py", "", "def test_sum(benchmark):\n    benchmark(sum, range(100))\n")
    ],
}

#: The cases of ``same-code``, as ``-k`` selects them.
SAME_CASES = ("lenet", "conv", "transformer", "gated", PLAIN)

#: Lines of models.py before which ``same-code`` inserts a comment, in turn. The first ones move all
#: models; the last ones are within the forward pass of one.
COMMENTED = (
    "class ConvNet(nn.Module):",
    "class Attention(nn.Module):",
    "        scores = queries @ keys.transpose(-2, -1)",
    "        pooled = self.norm(tokens).mean(dim=1)",
)


@dataclass(frozen=True)
class Injection:
    """A change of what the compiler makes of a model."""

    name: str
    kind: str
    case: str  # what -k selects
    edits: Edits
    places: Sequence[tuple[str, str]]  # path, and a text of a line that is right; injected first

    def lines(self, project: Path) -> list[tuple[str, int]]:
        """Return path and line of each right place in the changed project."""
        return [(name, line_of(project / name, text)) for name, text in self.places]


def load_injections() -> list[Injection]:
    """Return the injections of the file."""
    return [Injection(**table) for table in tomllib.loads(INJECTIONS.read_text())["injection"]]


def line_of(path: Path, text: str) -> int:
    """Return the line of a text that is there once."""
    content = path.read_text()
    if content.count(text) != 1:
        raise ValueError(f"{path.name} has {text!r} {content.count(text)} times")
    return content[: content.index(text)].count("\n") + 1


# ---- The project ---------------------------------------------------------------------------------


def git(project: Path, *arguments: str) -> str:
    """Run git in the project; return what it prints."""
    command = ["git", "-C", str(project), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def project(folder: Path) -> Path:
    """Return a git project of the template in a folder; make it if it is not there."""
    clone = folder / "project"
    if clone.exists():
        return clone
    shutil.copytree(TEMPLATE, clone, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    (clone / ".gitignore").write_text("__pycache__/\n.benchmarks/\n")
    git(clone, "init", "--quiet", "--initial-branch", BASE)
    git(clone, "config", "user.name", "evidence")
    git(clone, "config", "user.email", "evidence@localhost")
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "Models")
    return clone


def commit(clone: Path, message: str, edits: Edits) -> None:
    """Make a commit with the edits on top of the base, and check it out."""
    git(clone, "checkout", "--quiet", "--force", "-B", "head", BASE)
    for name, old, new in edits:
        path = clone / name
        if not old:
            path.write_text(new)
            continue
        line_of(path, old)
        path.write_text(path.read_text().replace(old, new.replace(OLD, old)))
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", message)


# ---- Run and keep --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """What became of a command."""

    exit_code: int | None  # None: it took too long
    seconds: float
    error: str  # the end of what it wrote to standard error


def run(command: Sequence[str], clone: Path, timeout_s: float, cache: Path) -> Done:
    """Run a command in the project with a cache of inductor; end it after a time."""
    start = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=clone,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    code = None
    try:
        output, _ = process.communicate(timeout=timeout_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its trials, too
        output, _ = process.communicate()
    return Done(code, round(time.monotonic() - start, 1), " ".join(output.split()[-40:]))


@dataclass(frozen=True)
class Results:
    """The newest result of each run, kept in a file of JSON lines."""

    file: Path
    study: str
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def load(cls, file: Path, study: str) -> Results:
        """Return the results of a study that the file has."""
        results = cls(file, study)
        for line in file.read_text().splitlines() if file.exists() else ():
            fields = json.loads(line)
            if fields["study"] == study:
                results.known[fields["name"]] = fields
        return results

    def is_missing(self, name: str) -> bool:
        return name not in self.known or bool(self.known[name]["error"])

    def keep(self, name: str, **fields: Any) -> None:
        self.known[name] = {"study": self.study, "name": name, **fields}
        with self.file.open("a") as stream:
            stream.write(json.dumps(self.known[name]) + "\n")

    @property
    def good(self) -> dict[str, dict[str, Any]]:
        """The results of runs that did not fail."""
        return {name: fields for name, fields in self.known.items() if not fields["error"]}

    @property
    def failures(self) -> Iterator[str]:
        """A line for each run that failed."""
        for name, fields in self.known.items():
            if fields["error"]:
                yield f"failed: {name}: {fields['error']}"


@dataclass(frozen=True)
class Setting:
    """Where a study runs, and which part of it."""

    folder: Path
    results: Results
    only: str
    timeout_s: float  # of a run
    options: Sequence[str]  # more options of each gate

    def selected(self, names: Iterable[str]) -> list[str]:
        """Return the names that have to be measured."""
        return [name for name in names if self.only in name and self.results.is_missing(name)]


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"


# ---- What the compiler captures ------------------------------------------------------------------


def form(case: str, *, with_inductor: bool) -> dict[str, Any]:
    """Run a model of the current folder, and return what the compiler makes of it."""
    import torch
    from torch._dynamo.utils import counters
    from torch._inductor import config, metrics

    sys.path[:0] = [os.getcwd(), "bench"]  # noqa: PTH109
    texts: list[str] = []

    def capture(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        shapes = [str(getattr(one, "shape", one)) for one in inputs]
        parameters = [str(one.shape) for one in graph.parameters()]
        texts.append("\n".join((graph.code, *shapes, *parameters)))
        return graph.forward

    step = step_of(case)
    with torch.compiler.set_stance("force_eager"):
        step()
    torch.manual_seed(0)
    config.force_disable_caches = True
    backend = contextlib.nullcontext()
    if not with_inductor:
        backend = torch.compiler.set_stance("default", force_backend=capture)
    graphs = []
    with backend:
        for _ in range(STEPS):
            step()
            graphs.append(counters["stats"]["unique_graphs"])
    return {
        "graphs": graphs[0],
        "recompiled": graphs[-1] - graphs[0],
        "breaks": sum(counters["graph_break"].values()),
        "digest": hashlib.sha256("\n".join(texts).encode()).hexdigest()[:8],
        "kernels": metrics.generated_kernel_count,
        "external": counters["inductor"]["extern_calls"],
    }


def step_of(case: str) -> Callable[[], object]:
    """Return a training step of a model of the project, or the call of its compiled function."""
    import importlib

    import torch

    generator = torch.Generator().manual_seed(0)
    if case == PLAIN:
        queries, keys = torch.randn(2, 16, 64, 64, generator=generator)
        similarity = importlib.import_module("ops").similarity
        return lambda: similarity(queries, keys)
    conftest = importlib.import_module("conftest")
    make_model, shape = conftest.MODELS[case]
    torch.manual_seed(0)
    model = make_model()
    compiled: Callable[[torch.Tensor], torch.Tensor] = torch.compile(model)
    inputs, targets = conftest.make_batch(shape, 16, torch.device("cpu"), generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(compiled(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer.step()

    return step


def form_in_process(
    clone: Path, case: str, timeout_s: float, *, with_inductor: bool
) -> dict[str, Any]:
    command = [sys.executable, "-P", __file__, "form", case]
    command += ["--inductor"] if with_inductor else []
    done = subprocess.run(
        command, cwd=clone, check=False, capture_output=True, text=True, timeout=timeout_s
    )
    if done.returncode:
        return {"error": " ".join(done.stderr.split()[-40:])}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def check(setting: Setting, *, with_inductor: bool) -> None:
    """Print what each change makes of what the compiler captures."""
    clone = project(setting.folder)
    bases: dict[str, dict[str, Any]] = {}
    rows = []
    for injection in load_injections():
        if setting.only not in injection.name:
            continue
        case = injection.case
        if case not in bases:
            git(clone, "checkout", "--quiet", "--force", BASE)
            bases[case] = form_in_process(
                clone, case, setting.timeout_s, with_inductor=with_inductor
            )
        commit(clone, injection.name, injection.edits)
        injection.lines(clone)
        head = form_in_process(clone, case, setting.timeout_s, with_inductor=with_inductor)
        differences = [
            f"{what} {bases[case].get(what)} -> {now}"
            for what, now in head.items()
            if bases[case].get(what) != now
        ]
        rows.append((injection.kind, injection.name, case, ", ".join(differences) or "**none**"))
        progress(" | ".join(rows[-1]))
    print(*table(("kind", "change", "case", "compiled form"), rows), sep="\n")


# ---- Identities ----------------------------------------------------------------------------------


def identities(setting: Setting) -> None:
    clone = project(setting.folder)
    commits: dict[str, Edits] = {f"process {number}": () for number in range(1, 6)}
    commits |= {f"commit: {name}": edits for name, edits in UNRELATED.items()}
    for name in setting.selected(commits):
        if commits[name]:
            commit(clone, name, commits[name])
        else:
            git(clone, "checkout", "--quiet", "--force", BASE)
        # The first two compile everything; the others find it in the cache of the second.
        cache = setting.folder / ("cache-1" if name == "process 1" else "cache-2")
        runs = setting.folder / "runs" / name.replace(": ", "-").replace(" ", "-")
        shutil.rmtree(runs, ignore_errors=True)
        command = [sys.executable, "-P", "-m", "pytest", "bench", "-p", "no:cacheprovider"]
        command += ["--benchmark-save=run", f"--benchmark-storage=file://{runs}"]
        done = run(command, clone, setting.timeout_s, cache)
        saved_runs = Storage(runs, "all").all()
        if done.exit_code or len(saved_runs) != 1:
            setting.results.keep(name, error=done.error or "no saved run", seconds=done.seconds)
            progress(f"{name}: failed: {done.error}")
            continue
        models = {
            case.params.workload: rows_of(case.table("warm", "host"))
            for case in saved_runs[0].run.cases
            if case.params
        }
        setting.results.keep(name, error="", seconds=done.seconds, models=models)
        numbers = ", ".join(f"{model} {len(rows['keys'])}" for model, rows in models.items())
        progress(f"{name}: {done.seconds:.0f} s, rows: {numbers}")
    print(*identity_lines(setting.results), sep="\n")


def rows_of(table: Any) -> dict[str, Any]:
    """Return names, phases and modules of the rows, and their sum as a share of the iteration."""
    sums = [
        sum(row.self_cpu_ns[position] for row in table.rows)
        for position in range(len(table.iteration_ns))
    ]
    shares = [sum_ns / whole_ns for sum_ns, whole_ns in zip(sums, table.iteration_ns, strict=True)]
    return {
        "keys": sorted(row.key for row in table.rows),
        "sums": [round(share, 4) for share in shares],
    }


def identity_lines(results: Results) -> Iterator[str]:
    """Yield the table, and the rows that have no partner or a name without meaning."""
    runs = results.good
    first = runs.get("process 1")
    yield from results.failures
    if first is None:
        return
    rows = []
    remarks = []
    for model, reference in first["models"].items():
        known = set(map(tuple, reference["keys"]))
        pairing: dict[str, list[float]] = {"process": [], "commit": []}
        shares = []
        for name, fields in runs.items():
            keys = set(map(tuple, fields["models"][model]["keys"]))
            shares += fields["models"][model]["sums"]
            if name != "process 1":
                pairing[name[: name.index(" ")].rstrip(":")].append(
                    len(keys & known) / len(keys | known)
                )
            remarks += [f"{model}, {name}: only there: {key}" for key in sorted(keys - known)]
            remarks += [f"{model}, {name}: missing: {key}" for key in sorted(known - keys)]
        meaningless = [key[0] for key in sorted(known) if MEANINGLESS.search(key[0])]
        remarks += [f"{model}: name without meaning: {name}" for name in meaningless]
        outside = sum(abs(share - 1) > SUM_LIMIT for share in shares)
        rows.append(
            (
                model,
                len(known),
                *(f"{min(pairs):.1%}" if pairs else "" for pairs in pairing.values()),
                f"{statistics.median(shares):.2%} ({min(shares):.2%} to {max(shares):.2%})",
                f"{outside} of {len(shares)}",
                len(meaningless),
            )
        )
    yield from table(
        (
            "model",
            "rows",
            "paired, other processes (least)",
            "paired, other commits (least)",
            "sum of the rows / iteration",
            f"off by more than {SUM_LIMIT:.0%}",
            "names without meaning",
        ),
        rows,
    )
    yield ""
    yield from remarks


# ---- Gates ---------------------------------------------------------------------------------------


def gate(
    setting: Setting, clone: Path, cache: Path, part: Sequence[str], options: Sequence[str] = ()
) -> tuple[Done, dict[str, Any] | None]:
    """Run the gate of the checked out commit against its parent; return its report, too."""
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.json"
        command = [sys.executable, "-P", "-m", "mnistbench", "gate", "--base", "HEAD~1", *OPTIONS]
        command += ["--format", "json", "--output", str(report), "--storage", temporary]
        command += [*setting.options, *options, "--", "bench", *part]
        done = run(command, clone, setting.timeout_s, cache)
        content = json.loads(report.read_text()) if report.exists() else None
    return done, content


def error_of(done: Done, report: Mapping[str, Any] | None) -> str:
    """Return why there is no report; empty if there is one."""
    if report is not None:
        return ""
    return "it took too long" if done.exit_code is None else done.error or "no report"


def regressed_in(report: Mapping[str, Any]) -> list[str]:
    """Return what regressed, each with its case."""
    return [
        f"{finding['screened']['case']}: {finding['screened']['title']}"
        for finding in report["findings"]
        if finding["verdict"] == REGRESSED
    ]


@dataclass(frozen=True)
class Named:
    """A likely cause."""

    text: str
    path: str = ""
    line: int = 0  # 0: it names no line


def causes_of(report: Mapping[str, Any]) -> list[Named]:
    """Return the likely causes, that of the gravest finding first; else the exact differences."""
    causes = [
        as_named(group["cause"], group["path"], group["line"])
        for group in report["groups"]
        if group["cause"]
    ]
    causes = causes or [
        as_named(finding["cause"], None, None) for finding in report["findings"] if finding["cause"]
    ]
    exact = [text for texts in report["exact"].values() for text in texts]
    return causes or [as_named(text, None, None) for text in exact]


def as_named(text: str, path: str | None, line: int | None) -> Named:
    """Return a cause with its line, which may be in the text only."""
    if found := PLACE.search(text):
        return Named(text, found[1], int(found[2]))
    return Named(text, path or "", line or 0)


def hit(cause: Named | None, right: Sequence[tuple[str, int]], clone: Path) -> str:
    """Return how exactly a cause names one of the right lines."""
    if cause is None:
        return "none"
    if (cause.path, cause.line) == right[0]:
        return "line"
    if (cause.path, cause.line) in right:
        return "use"
    functions = {f"{path}:{function_around(clone / path, line)}" for path, line in right}
    return "function" if any(name in cause.text for name in functions) else "other"


def function_around(path: Path, line: int) -> str:
    """Return the qualified name of the function that has a line; else of the class."""
    names: list[str] = []

    def search(nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and (
                node.lineno <= line <= (node.end_lineno or 0)
            ):
                names.append(node.name)
                search(node.body)

    search(ast.parse(path.read_text()).body)
    return ".".join(names)


def injections(setting: Setting) -> None:
    clone = project(setting.folder)
    known = {injection.name: injection for injection in load_injections()}
    for name in setting.selected(known):
        injection = known[name]
        commit(clone, name, injection.edits)
        right = injection.lines(clone)
        done, report = gate(setting, clone, setting.folder / "cache", ["-k", injection.case])
        fields: dict[str, Any] = {"error": error_of(done, report), "seconds": done.seconds}
        if report is not None:
            causes = causes_of(report)
            fields |= {
                "exit_code": done.exit_code,
                "sentence": report["sentence"],
                "regressed": regressed_in(report),
                "exact": [text for texts in report["exact"].values() for text in texts],
                "causes": [cause.text for cause in causes],
                "right": [f"{path}:{line}" for path, line in right],
                "first": hit(causes[0] if causes else None, right, clone),
                "among": [hit(cause, right, clone) for cause in causes],
            }
        setting.results.keep(name, **fields)
        progress(" | ".join(map(str, injection_row(injection, setting.results.known[name]))))
    print(*injection_lines(setting.results, known), sep="\n")


def injection_row(injection: Injection, fields: Mapping[str, Any]) -> Sequence[object]:
    """Return the row of an injection."""
    cells = (injection.kind, injection.name, injection.case)
    if fields["error"]:
        return (*cells, "", fields["error"], "", "", "", fields["seconds"])
    return (
        *cells,
        fields["exit_code"],
        len(fields["regressed"]),
        len(fields["exact"]),
        fields["causes"][0] if fields["causes"] else "none",
        fields["right"][0],
        fields["first"],
        f"{fields['seconds']:.0f}",
    )


def injection_lines(results: Results, known: Mapping[str, Injection]) -> Iterator[str]:
    """Yield the table of the injections, and how often the right line is named."""
    columns = ("kind", "change", "case", "exit", "regressed", "exact", "likely cause", "line")
    rows = [
        injection_row(known[name], fields)
        for name, fields in results.known.items()
        if name in known
    ]
    yield from table((*columns, "first cause", "seconds"), rows)
    good = [fields for name, fields in results.good.items() if name in known]
    found = [fields for fields in good if fields["regressed"] or fields["exact"]]
    yield ""
    yield f"regressed or an exact difference: {len(found)} of {len(good)}"
    for title, hits in {
        "the injected line is the first cause": ("line",),
        "it or a line that uses what it sets": ("line", "use"),
        "or their function": ("line", "use", "function"),
    }.items():
        first = sum(fields["first"] in hits for fields in good)
        yield f"{title}: {first} of {len(good)}"
    yield from results.failures


def same_code(setting: Setting, number: int) -> None:
    clone = project(setting.folder)
    names = [
        f"gate {position}, {SAME_CASES[position % len(SAME_CASES)]}"
        for position in range(1, number + 1)
    ]
    for name in setting.selected(names):
        position = names.index(name)
        line = COMMENTED[position % len(COMMENTED)]
        indent = " " * (len(line) - len(line.lstrip()))
        comment = f"{indent}# Comment {position + 1}.\n" * (1 + position // len(COMMENTED))
        commit(clone, name, [("models.py", line, comment + line)])
        part = ("-k", name.rpartition(" ")[2])
        done, report = gate(setting, clone, setting.folder / "cache", part, ["--all-cases"])
        fields: dict[str, Any] = {"error": error_of(done, report), "seconds": done.seconds}
        if report is not None:
            fields |= {
                "exit_code": done.exit_code,
                "sentence": report["sentence"],
                "cases": len({case["case"] for case in report["cases"]}),
                "regressed": regressed_in(report),
                "exact": [
                    f"{case}: {text}" for case, texts in report["exact"].items() for text in texts
                ],
                "different": report["different"],
            }
        setting.results.keep(name, **fields)
        progress(f"{name}: {fields.get('sentence') or fields['error']}, {done.seconds:.0f} s")
    print(*same_code_lines(setting.results), sep="\n")


def same_code_lines(results: Results) -> Iterator[str]:
    """Yield the table of the gates over the same code, and what they found."""
    good = results.good
    yield from table(
        ("gate", "exit", "cases", "regressed", "exact", "different numbers", "seconds"),
        (
            (
                name,
                fields["exit_code"],
                fields["cases"],
                len(fields["regressed"]),
                len(fields["exact"]),
                len(fields["different"]),
                f"{fields['seconds']:.0f}",
            )
            for name, fields in good.items()
        ),
    )
    yield ""
    for what in ("regressed", "exact"):
        number = sum(bool(fields[what]) for fields in good.values())
        yield f"{what}: {number} of {len(good)} gates"
        for name, fields in good.items():
            yield from (f"  {name}: {text}" for text in fields[what])
    yield from results.failures


def cost(setting: Setting, number: int) -> None:
    clone = project(setting.folder)
    wanted = setting.only or COST_INJECTION
    injection = next(one for one in load_injections() if wanted in one.name)
    commit(clone, injection.name, injection.edits)
    ways = {"compiled": "true", "eager": "false"}
    for position in range(1, number + 1):
        # The order changes from pair to pair, so that drift of the machine falls on both.
        for way in sorted(ways, reverse=position % 2 == 0):
            name = f"{injection.name}, pair {position}, {way}"
            if not setting.results.is_missing(name):
                continue
            part = ["-k", injection.case, "-o", f"bench_compile={ways[way]}"]
            with tempfile.TemporaryDirectory() as cache:  # empty, as in a new job
                done, report = gate(setting, clone, Path(cache), part)
            setting.results.keep(
                name,
                error=error_of(done, report),
                seconds=done.seconds,
                change=injection.name,
                way=way,
                pair=position,
                trials=report and report["trials"],
                fresh_trials=report and report["fresh_trials"],
                parts=report and report["parts_seconds"],
                sentence=report and report["sentence"],
            )
            progress(f"{name}: {done.seconds:.0f} s")
    print(*cost_lines(setting.results), sep="\n")


def cost_lines(results: Results) -> Iterator[str]:
    """Yield the table of the pairs of gates, and the median of their ratios."""
    pairs: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for fields in results.good.values():
        pairs.setdefault((fields["change"], fields["pair"]), {})[fields["way"]] = fields
    whole = {key: ways for key, ways in pairs.items() if len(ways) == 2}
    ratios = [ways["compiled"]["seconds"] / ways["eager"]["seconds"] for ways in whole.values()]
    yield from table(
        ("change", "pair", "compiled, s", "trials", "eager, s", "trials", "ratio"),
        (
            (
                *key,
                *(
                    cell
                    for way in (ways["compiled"], ways["eager"])
                    for cell in (
                        f"{way['seconds']:.0f}",
                        f"{way['trials']} + {way['fresh_trials']}",
                    )
                ),
                f"{ratio:.2f}",
            )
            for (key, ways), ratio in zip(whole.items(), ratios, strict=True)
        ),
    )
    if ratios:
        yield ""
        yield f"median ratio: {statistics.median(ratios):.2f}"
    yield from results.failures


# ---- Events of kernels ---------------------------------------------------------------------------


def kernel_events() -> None:
    """Print what an event of a kernel costs: calls of an empty function with and without it."""
    import torch

    from mnistbench.suite.measuring.observing import with_event

    def empty(*_: object) -> None:
        pass

    def ns_per_call(function: Callable[..., object], calls: int) -> float:
        start_ns = time.perf_counter_ns()
        for _ in range(calls):
            function(1, 2, 3)
        return (time.perf_counter_ns() - start_ns) / calls

    observed = with_event("kernel", empty)
    for name, calls, profiled in (("without", 20_000, False), ("with", 2_000, True)):
        profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
        with profiler if profiled else contextlib.nullcontext():
            plain_ns, event_ns = (
                min(ns_per_call(function, calls) for _ in range(9))
                for function in (empty, observed)
            )
        print(f"{name} a profiler: {event_ns - plain_ns:.0f} ns a call")


# ---- Command line --------------------------------------------------------------------------------


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    captured = commands.add_parser("form", help="print what the compiler makes of a model here")
    captured.add_argument("case")
    captured.add_argument("--inductor", action="store_true")
    commands.add_parser("kernel-events", help="print what an event of a kernel costs")
    for name in ("check", "identities", "injections", "same-code", "cost"):
        command = commands.add_parser(name)
        command.add_argument("--only", default="", metavar="TEXT")
        command.add_argument("--folder", type=Path, help="where the project is made and kept")
        command.add_argument("--timeout", type=float, default=900, help="seconds of a run")
        if name == "check":
            command.add_argument("--inductor", action="store_true")
            continue
        command.add_argument("--results", type=Path, required=True, metavar="FILE")
        if name != "identities":
            command.add_argument("--budget", default="", help="of each gate, such as 5m")
            command.add_argument("--trials", default="", help="of each gate")
        if name in ("same-code", "cost"):
            command.add_argument("--number", type=int, default=20 if name == "same-code" else 5)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if arguments.command == "form":
        print(json.dumps(form(arguments.case, with_inductor=arguments.inductor)))
        return
    if arguments.command == "kernel-events":
        kernel_events()
        return
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        file = getattr(arguments, "results", None) or folder / "results.jsonl"
        of_gates = {name: getattr(arguments, name, "") for name in ("budget", "trials")}
        setting = Setting(
            folder=folder.resolve(),
            results=Results.load(file, arguments.command),
            only=arguments.only,
            timeout_s=arguments.timeout,
            options=tuple(
                text for name, value in of_gates.items() if value for text in (f"--{name}", value)
            ),
        )
        match arguments.command:
            case "check":
                check(setting, with_inductor=arguments.inductor)
            case "identities":
                identities(setting)
            case "injections":
                injections(setting)
            case "same-code":
                same_code(setting, arguments.number)
            case "cost":
                cost(setting, arguments.number)


if __name__ == "__main__":
    main()
