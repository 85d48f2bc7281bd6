"""``mnistbench compare``: compare saved runs, or two traces, and judge them by thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mnistbench.compare.criteria import Criteria
from mnistbench.compare.diff import compare
from mnistbench.compare.judge import judge
from mnistbench.compare.report import report
from mnistbench.core import options
from mnistbench.core.errors import UsageError
from mnistbench.core.machine import gc_paused
from mnistbench.core.params import DTYPES, STEPS, Params
from mnistbench.core.record import CaseRecord
from mnistbench.judging.verdicts import INCONCLUSIVE, NONE, PASSED, REGRESSED
from mnistbench.saved_runs.references import OR_TRACE, find
from mnistbench.saved_runs.run import Run
from mnistbench.showing.output import (
    EXIT_INCONCLUSIVE,
    EXIT_PASSED,
    EXIT_REGRESSED,
    CommandResult,
    deliver_result,
)

#: Parameters that two compared cases may differ in, and their values by name.
_BETWEEN: Mapping[str, Mapping[str, object]] = {
    "step": {step: step for step in STEPS},
    "dtype": {dtype: dtype for dtype in DTYPES},
    "compile": {"no": False, "yes": True},
}

_CODES = {
    NONE: EXIT_PASSED,
    PASSED: EXIT_PASSED,
    REGRESSED: EXIT_REGRESSED,
    INCONCLUSIVE: EXIT_INCONCLUSIVE,
}


def _two_values(text: str) -> tuple[str, object, object]:
    """Read ``step=reference,fast``: a parameter, its value in the base and that in the head."""
    name, _, values = text.partition("=")
    known = _BETWEEN.get(name, {})
    chosen = [known[value] for value in values.split(",") if value in known]
    if len(chosen) != 2 or values.count(",") != 1 or chosen[0] == chosen[1]:
        choices = " or ".join(
            f"{parameter}={','.join(values)}" for parameter, values in _BETWEEN.items()
        )
        raise ValueError(f"cannot be used; give {choices}")
    return name, chosen[0], chosen[1]


@dataclass(frozen=True, kw_only=True)
class Settings(Criteria):
    """The options of the command."""

    base: str = options.argument(
        "BASE", str, f"{OR_TRACE}; several runs of one commit are samples of one base"
    )
    head: str = options.argument("HEAD", str, f"{OR_TRACE}; several runs of one commit are samples")
    between: tuple[str, object, object] | None = options.option(
        "--between",
        _two_values,
        None,
        "compare two values of a parameter: A in the cases of BASE, B in those of HEAD; both may "
        f"be one run; parameters: {', '.join(_BETWEEN)}",
        "NAME=A,B",
    )
    top: int = options.top()
    format: str = options.output_format()
    output: Path | None = options.output()
    storage: Path = options.storage()


@gc_paused()  # it would search the records of all runs
def run(settings: Settings) -> int:
    """Print the comparison; return 0 passed, 1 regressed, 2 inconclusive.

    Raises:
        MnistbenchError: an option cannot be used, or a run cannot be read.
    """
    of_base, of_head = find(settings.storage, settings.base, settings.head)
    newest = of_head[-1]
    head = newest.run
    bases = [saved_run.run for saved_run in of_base]
    older_heads = [candidate.run for candidate in of_head[:-1]]
    if settings.between:
        if head.trace:
            raise UsageError("--between: traces have no parameters; leave it out")
        bases, head, older_heads = _between(*settings.between, bases, head, older_heads)
    else:
        bases = [
            saved_run.run
            for saved_run in of_base
            if saved_run.path.resolve() != newest.path.resolve()
        ]
        if not bases:
            kind = "trace" if head.trace else "saved run"
            raise UsageError(
                f"{settings.base!r} and {settings.head!r} are one {kind}, {newest.path}: name "
                "another base"
            )
        # A run that both sides name is one of the base.
        base_paths = {saved_run.path.resolve() for saved_run in of_base}
        older_heads = [
            candidate.run
            for candidate in of_head[:-1]
            if candidate.path.resolve() not in base_paths
        ]
    judgement = judge(compare(bases, head, older_heads, **settings.of_comparison), settings)
    result = CommandResult(
        report(judgement, settings.top), _CODES[judgement.outcome], is_verdict=True
    )
    # Here and not by the caller: the report refers to all runs. A search for reference cycles among
    # them, after the pause, takes 5 % of the time of a comparison with 400 runs.
    return deliver_result(result, settings)


def _between(
    name: str,
    base_value: object,
    head_value: object,
    bases: Sequence[Run],
    head: Run,
    older_heads: Sequence[Run],
) -> tuple[list[Run], Run, list[Run]]:
    """Return the cases of each side that have its value of a parameter.

    Cases are paired by their Params. So those of the base get the value of the head.
    """
    base_runs = [_with_cases_of(run, name, base_value) for run in bases]
    head_runs = [_with_cases_of(run, name, head_value) for run in (*older_heads, head)]
    for side, runs, value in (
        ("BASE", base_runs, base_value),
        ("HEAD", head_runs[-1:], head_value),
    ):
        if not any(run.cases for run in runs):
            shown = next(text for text, known in _BETWEEN[name].items() if known == value)
            raise UsageError(
                f"--between: {side} has no case with {name} {shown}: measure it, or name another "
                "run"
            )
    if name == "compile":
        renamed_bases = _compiled_alike(base_runs, head_runs[-1], head_value)
    else:
        renamed_bases = [_with_parameter(run, name, head_value) for run in base_runs]
    return renamed_bases, head_runs[-1], head_runs[:-1]


def _with_cases_of(run: Run, name: str, value: object) -> Run:
    """Return a run with those of its cases in which a parameter has a value."""
    kept = (case for case in run.cases if case.params and getattr(case.params, name) == value)
    return replace(run, cases=tuple(kept))


def _with_parameter(run: Run, name: str, value: object) -> Run:
    """Return a run with a value of a parameter in all of its cases."""
    change: dict[str, Any] = {name: value}
    cases = (
        replace(case, params=replace(case.params, **change)) for case in run.cases if case.params
    )
    return replace(run, cases=tuple(cases))


def _compiled_alike(bases: Sequence[Run], head: Run, value: object) -> list[Run]:
    """Return runs with ``compile`` and ``compile_with`` of the head in all of their cases.

    One side is eager. Its cases are compared with cases of any settings of ``torch.compile``.

    Raises:
        UsageError: the base has a case with several settings, which are no samples of one case.
    """
    change: dict[str, Any] = {"compile": value}  # of cases that the head does not have
    head_params = {_eager(case): case.params for case in head.cases}
    base_labels: dict[tuple[str, Params], str] = {}
    runs = []
    for run in bases:
        cases = []
        for case in run.cases:
            eager = _eager(case)
            label = base_labels.setdefault(eager, case.known_params.label)
            if label != case.known_params.label:
                raise UsageError(
                    f"--between: BASE has {label} and {case.known_params.label}: name runs with "
                    "one of them"
                )
            params = head_params.get(eager) or replace(eager[1], **change)
            cases.append(replace(case, params=params))
        runs.append(replace(run, cases=tuple(cases)))
    return runs


def _eager(case: CaseRecord) -> tuple[str, Params]:
    """Return the test of a case, and its parameters if it were not compiled."""
    return case.test, replace(case.known_params, compile=False, compile_with="")
