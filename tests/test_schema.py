"""The JSON of ``compare``, ``gate`` and ``bisect`` is what the files in docs/schema/ describe."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import builders
import compiled_builders
import gate_builders
import pytest
import strategies
from gate_builders import ADD, CASE, CLONE, GEMM, LABEL, MM, Measured, recorded, series
from gate_scenes import SCENES
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from mnistbench.compare import diff, judge, pairing
from mnistbench.compare import report as compare_report
from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.compare.diff import compare
from mnistbench.core import params
from mnistbench.core.options import GROUPINGS
from mnistbench.gate import words
from mnistbench.gate.commands import bisect as bisect_command
from mnistbench.gate.commands import bisection
from mnistbench.gate.commands.bisection import NOT_JUDGED, NOT_SLOWER, SLOWER, Bisection, Gate
from mnistbench.gate.decide.statistics.quantities import Replaced
from mnistbench.gate.decide.verdict.decision import decide
from mnistbench.gate.decide.verdict.verdict import Verdict, conclude
from mnistbench.gate.listing import Reach
from mnistbench.gate.options import JudgeOptions, Thresholds
from mnistbench.gate.qualification import resampling
from mnistbench.gate.qualification.report import report as report_of_qualification
from mnistbench.gate.qualification.result import Qualification
from mnistbench.gate.report import listed
from mnistbench.gate.report.report import report
from mnistbench.gate.samples.raw_samples import INTERRUPTED
from mnistbench.gate.words import ALL_CASES, BASE, HEAD, RESIDENT
from mnistbench.judging import kinds, verdicts
from mnistbench.judging.acceptance import Acceptance
from mnistbench.judging.verdicts import INCONCLUSIVE, PASSED, REGRESSED
from mnistbench.saved_runs.compatibility import REMEDIES

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = {
    path.name: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((REPOSITORY / "docs" / "schema").iterdir())
}

#: Report -> its schema of this version.
CURRENT = {
    "compare": "comparison.json",
    "gate": "gate.json",
    "bisect": "bisection.json",
    "qualify": "qualification.json",
    "list": "cases.json",
}

#: Report and golden file.
GOLDEN = [
    (report, path)
    for report, name in CURRENT.items()
    for path in sorted((REPOSITORY / "tests" / "golden").glob(f"{Path(name).stem}*.json"))
]

#: Objects whose keys are names of anything: cases, packages, variables, reasons.
MAPS = {
    "gate": {
        "variables",
        "packages",
        "frameworks",
        "memory",
        "resident",
        "exact",
        "not_finite",
        "left_out",
        "notes",
        "outlives",
        "uncompared",
        "cpu",
        "implementations",
        "thresholds_of_tests",
    },
    "compare": {"environment", "incomparable", "left_out"},
}
MAPS["bisect"] = {"report"}  # of a gate, whose schema is referred to
MAPS["qualify"] = set[str]()
MAPS["list"] = {"unmeasurable", "not_followed"}


@functools.cache
def validator(report):
    registry = Registry().with_resources(
        (name, Resource.from_contents(document)) for name, document in DOCUMENTS.items()
    )
    return Draft202012Validator(DOCUMENTS[CURRENT[report]], registry=registry)


def complaints(report, document):
    return [
        f"{error.json_path}: {error.message}" for error in validator(report).iter_errors(document)
    ]


# ---- Documents -----------------------------------------------------------------------------------


def as_json(verdict):
    return json.loads(report(verdict).json)


def concluded(measured, fresh=0, once=None, **changes):
    """The verdict over eight trials of a case, and so many fresh ones.

    Keywords are of the header or of the options.
    """
    trials = [
        *series(measured, seed=3, once=once),
        *(series(measured, stage=2, seed=4, count=fresh, once=once) if fresh else []),
    ]
    options = {name: changes.pop(name) for name in ("reason", "allow_missing") if name in changes}
    accept = tuple(map(Acceptance.parse, changes.pop("accept", ())))
    return conclude(recorded(trials, **changes), JudgeOptions(accept=accept, **options))


QUIET = Measured().operations
SLOWER_CASE = Measured(factor=1.08, operations={**QUIET, MM: (1_000_000, 1.3)})
REPLACED_CASE = Measured(
    factor=1.04,
    operations={**QUIET, GEMM: (900_000, 1.0), CLONE: (8_000, 1.0)},
    only_base=[MM],
    only_new=[GEMM, CLONE],
)
OTHER = "bench/test_step.py::test_step[mlp-b1-cpu]"

VERDICTS = {
    "flagged and not measured again": (INCONCLUSIVE, lambda: concluded(SLOWER_CASE)),
    "once": (
        REGRESSED,
        lambda: concluded(
            Measured(),
            8,
            {("import", ALL_CASES): (50_000_000, 1.6), (RESIDENT, ALL_CASES): (90_000_000, 1.0)},
        ),
    ),
    "interrupted": (INCONCLUSIVE, lambda: concluded(Measured(), end=INTERRUPTED)),
    "nothing measured": (INCONCLUSIVE, lambda: conclude(recorded(series(count=3)), JudgeOptions())),
    "no operations": (PASSED, lambda: concluded(Measured(operations={}))),
    "not finite": (PASSED, lambda: concluded(Measured(outcomes=(("aa", 0.5), ("bb", None))))),
    "everything in the header": (
        INCONCLUSIVE,
        lambda: concluded(
            Measured(),
            torch="2.14.0 -> 2.15.0",
            variables={BASE: {}, HEAD: {"OMP_NUM_THREADS": "2"}},
            packages={"torch": ["2.14.0", "2.15.0"], "numpy": ["", "2.0"]},
            memory={CASE: {BASE: 4_096, HEAD: 8_192}},
            resident={BASE: 400_000_000, HEAD: 800_000_000},
            only_base=[OTHER],
            only_head=["a"],
            changed=["b"],
            left_out={BASE: {}, HEAD: {OTHER: "it is skipped"}},
            notes={CASE: "a note"},
            outlives={CASE: "1 thread goes on"},
            op_fail={CASE: {HEAD: ("10%", "aten::mm:5%")}},
            case_fail={CASE: ("", "3%")},
            uncompared={CASE: "it returns nothing"},
            cpu={BASE: {}, HEAD: {"instruction set": "AVX2"}},
            implementations={CASE: {BASE: {}, HEAD: {"matmul ref:any": 1}}},
        ),
    ),
}


def compared():
    """A comparison with all that a report may have.

    Replaced, new and small operations, a function, several base runs, problems and an accepted
    regression.
    """
    rows = [
        builders.op_row("aten::mm", 900_000),
        builders.op_row("aten::add", 90_000),
        builders.op_row("aten::t", 10),
    ]
    slower = [
        builders.op_row("aten::mm", 1_900_000),
        builders.op_row("aten::clone", 80_000),
        builders.op_row("aten::t", 10),
    ]
    functions = builders.op_table(builders.function_row(), view="functions")
    bases = [
        builders.summary(
            builders.case_record(tables=(builders.op_table(*rows),)),
            builders.case_record(batch_size=1),
        ),
        builders.summary(
            builders.case_record(tables=(builders.op_table(*rows), functions)), dirty=True
        ),
    ]
    new = builders.summary(
        builders.case_record(tables=(builders.op_table(*slower), functions)),
        builders.case_record(batch_size=64),
        environment=builders.environment(torchvision="0.31.0"),
    )
    accept = (Acceptance.parse("*:aten::mm:200%"),)
    criteria = Criteria(op_fail=(Threshold.parse("10%"),), accept=accept, reason="it is exact now")
    return judge.judge(compare(bases, new), criteria)


def searched():
    slower = concluded(SLOWER_CASE, 8)
    same = concluded(Measured())
    gates = (
        Gate("2.14.0", SLOWER, "", slower, ".benchmarks/gate/1.jsonl.gz", 203.4),
        Gate("2.12.0", NOT_SLOWER, "", same, ".benchmarks/gate/2.jsonl.gz", 110.0),
        Gate("2.13.0", NOT_JUDGED, "head: ImportError: boom", seconds=12.0),
    )
    return Bisection("torch", ("2.11.0", "2.12.0", "2.13.0", "2.14.0"), gates)


def qualified(spread=0.5):
    """A qualification of a noisy machine by two gates of the same code."""
    measured = {CASE: Measured(spread=spread), OTHER: Measured()}
    measured_trials = recorded(
        series(measured, count=resampling.least_trials(Thresholds())),
        labels={CASE: LABEL, OTHER: "other"},
        machine="EPYC, 2 cores",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resampling, "GATES", 2)
        found = resampling.resample(measured_trials, Thresholds(), 240.0, lambda: True)
    return Qualification(measured_trials, found)


@functools.cache
def document_of(report):
    """A document of a report; no test changes it."""
    if report == "compare":
        return json.loads(compare_report.report(compared(), 10).json)
    if report == "bisect":
        return json.loads(bisect_command.report(searched()).json)
    if report == "qualify":
        return json.loads(report_of_qualification(qualified(), 10)[1].json)
    if report == "list":
        reach = Reach(reasons={CASE: ("runs pkg/a.py:f (changed)",)}, same={OTHER: "other"})
        return json.loads(listed.report(gate_builders.header(reach=reach)).json)
    return as_json(concluded(REPLACED_CASE, 8, only_base=[OTHER]))


# ---- What is written is valid --------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_schema_is_a_schema_of_its_name_and_version(name):
    Draft202012Validator.check_schema(DOCUMENTS[name])
    assert DOCUMENTS[name]["properties"]["schema"]["const"] == 1
    assert next(iter(DOCUMENTS[name]["required"])) == "schema"


def test_every_report_has_a_schema_of_this_version():
    assert set(CURRENT.values()) == set(DOCUMENTS)
    assert {report for report, _ in GOLDEN} == {"gate", "compare"}


@pytest.mark.versions
@pytest.mark.parametrize(("report", "path"), GOLDEN, ids=lambda value: getattr(value, "stem", ""))
def test_a_golden_file_is_valid(report, path):
    document = json.loads(path.read_text(encoding="utf-8"))
    assert next(iter(document)) == "schema"
    assert complaints(report, document) == []


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_is_valid(name):
    outcome, make = VERDICTS[name]
    document = as_json(make())
    assert (document["outcome"], complaints("gate", document)) == (outcome, [])


@pytest.mark.parametrize("scene", SCENES)
def test_a_verdict_whose_report_is_tested_is_valid(scene):
    assert complaints("gate", as_json(SCENES[scene]())) == []


@pytest.mark.parametrize("report", CURRENT)
def test_a_report_is_valid(report):
    assert complaints(report, document_of(report)) == []


def effect(logs, **changes):
    """An effect of a case of ``empty_verdict``.

    Its logarithms may be too large for the times of an ordinary one.
    """
    return dataclasses.replace(gate_builders.quantity((0.0,) * 8, case=CASE, **changes), logs=logs)


#: Of a case; times are at least a nanosecond and less than two weeks.
SHARES = st.just(0.0) | st.floats(1e-16, 10)

LOGS = st.sampled_from([0.0, 0.01, -0.01, 0.3, 43.0, -43.0, 800.0, -800.0, math.nan]) | st.floats(
    -43, 43
)


@st.composite
def any_effects(draw):
    """Differences of any size, and of spoiled trials.

    Also such that are no longer finite as a share.
    """
    effects = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(
            st.sampled_from(
                [
                    "iteration",
                    "mean",
                    "operation",
                    "replaced",
                    "added",
                    "outside",
                    "other",
                    "once",
                    "memory",
                ]
            )
        )
        clocks = {"iteration": ["wall", "cpu", "device"], "mean": ["wall", "cpu"]}
        name = draw(st.sampled_from(clocks.get(kind, [f"{number}"])))
        of_operations = {}
        if kind not in ("iteration", "mean", "once", "memory"):
            of_operations["share"] = draw(SHARES)
        if kind in ("replaced", "added"):
            sides = st.none() | st.floats(0, 1e15)
            of_operations["replaced"] = tuple(
                Replaced(key, draw(sides), draw(sides)) for key in (MM, ADD)
            )
        logs = draw(st.just((draw(LOGS),) * 8) | st.tuples(*[LOGS] * 8))
        effects.append(effect(logs, kind=kind, name=name, **of_operations))
    return list({effect.key: effect for effect in effects}.values())


@strategies.many(900)
@given(any_effects(), st.booleans())
def test_whatever_was_measured_the_verdict_is_valid(effects, again):
    decided = decide(effects, effects if again else (), Thresholds(), 7)
    verdict = dataclasses.replace(empty_verdict(), decision=decided)
    assert complaints("gate", as_json(verdict)) == []


@functools.cache
def empty_verdict() -> Verdict:
    return conclude(recorded(series(count=1)), JudgeOptions())


def test_a_qualification_without_a_result_is_valid():
    interrupted = Qualification(recorded(series(count=3), end=INTERRUPTED))
    document = json.loads(report_of_qualification(interrupted, 10)[1].json)
    assert (document["found"], complaints("qualify", document)) == (None, [])


def test_a_change_that_is_not_finite_is_null():
    decided = decide([effect((800.0,) * 8, kind="operation")], (), Thresholds(), 7)
    assert math.isinf(decided.operations[0].change)
    document = as_json(dataclasses.replace(empty_verdict(), decision=decided))
    assert [document["operations"][0][name] for name in ("change", "low", "high")] == [None] * 3
    assert document["no_regression_of"] is None


LIMITS = Criteria(
    op_fail=(Threshold.parse("10%"), Threshold.parse("conv2:5%")),
    case_fail=Threshold.parse("5%"),
    accept=(Acceptance.parse("*:*:50%"), Acceptance.parse("*:*mm*:5%")),
    reason="x",
)


@strategies.many(900)
@given(
    st.lists(strategies.case_records(), max_size=3),
    st.lists(strategies.case_records(), min_size=1, max_size=2),
    st.lists(strategies.environments(), min_size=2, max_size=2),
    st.sampled_from(GROUPINGS),
    st.sampled_from([Criteria(), LIMITS]),
    st.booleans(),
    st.booleans(),
)
def test_whatever_runs_are_compared_the_judgement_is_valid(
    bases, head, environments, by, criteria, across_versions, across_machines
):
    # Each base run has the new run's first case too, so that something is compared.
    same = {"test": head[0].test, "params": head[0].params}
    runs = [
        builders.summary(
            builders.with_timing(record),
            builders.with_timing(dataclasses.replace(record, **same)),
            environment=environments[number % 2],
        )
        for number, record in enumerate(bases)
    ]
    new = builders.summary(*map(builders.with_timing, head), environment=environments[0])
    criteria = dataclasses.replace(criteria, by=by)
    across = {"across_versions": across_versions, "across_machines": across_machines}
    judgement = judge.judge(compare(runs, new, by=by, **across), criteria)
    assert complaints("compare", json.loads(compare_report.report(judgement, 10).json)) == []


@pytest.mark.parametrize(
    "times",
    [(1_000_000,) * 3, (1_000_000, 1_500_000, 800_000, 1_200_000) * 2],
    ids=["few", "eight"],
)
@pytest.mark.parametrize("factor", [0.2, 0.9, 1, 1.3, 5])
@pytest.mark.parametrize("criteria", [Criteria(), LIMITS], ids=["no threshold", "thresholds"])
def test_a_judgement_by_either_rule_is_valid(times, factor, criteria):
    judgement = judge.judge(
        compare(builders.base_runs(8, *times), builders.base_runs(1, round(1_000_000 * factor))[0]),
        criteria,
    )
    assert complaints("compare", json.loads(compare_report.report(judgement, 10).json)) == []


def test_a_benchmark_without_a_record_has_no_params():
    plain = builders.saved_file()
    plain["benchmarks"][0]["extra_info"] = {}
    run = diff.Run.from_json(plain, "0001_plain.json")
    document = json.loads(
        compare_report.report(judge.judge(compare([run], run), Criteria()), 10).json
    )
    assert document["cases"][0]["params"] is None
    assert complaints("compare", document) == []


# ---- What is spoiled is not ----------------------------------------------------------------------


def places(
    value: Any, free: set[str], path: tuple[str | int, ...] = ()
) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of each key of a closed object. Of a list only the first object counts."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            yield (*path, name)
            if name not in free:
                yield from places(member, free, (*path, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], free, (*path, 0))


def spoiled(document, path, change):
    """The document with one object changed by ``change(object, key)``.

    The object has the key at the end of the path.
    """
    copied = copy.deepcopy(document)
    change(functools.reduce(lambda value, step: value[step], path[:-1], copied), path[-1])
    return copied


def removed(members, key):
    del members[key]


def renamed(members, key):
    members[f"{key}_"] = members.pop(key)


def joined(members, key):
    members[f"{key}_too"] = members[key]


def of_another_type(members, key):
    members[key] = {"a": 1} if not isinstance(members[key], dict) else "a"


@pytest.mark.parametrize("change", [removed, renamed, joined, of_another_type])
def test_what_compilation_replaced_has_no_other_key(change):
    broken = compiled_builders.compilation(
        breaks=(compiled_builders.BROKEN,), recompilations=(compiled_builders.AGAIN,)
    )
    bases = [builders.summary(compiled_builders.eager())]
    head = builders.summary(compiled_builders.compiled(compilation=broken))
    comparison = compare_report.report(judge.judge(compare(bases, head), Criteria()), 10)
    document = json.loads(comparison.json)
    assert complaints("compare", document) == []
    paths = [
        path
        for path in places(document, MAPS["compare"])
        if {"compilation", "modules"}.intersection(path)
    ]
    assert len(paths) > 30
    is_valid = validator("compare").is_valid
    assert [path for path in paths if is_valid(spoiled(document, path, change))] == []


@pytest.mark.parametrize("change", [removed, renamed, joined, of_another_type])
@pytest.mark.parametrize("report", CURRENT)
def test_a_report_with_another_key_at_any_place_is_not_valid(report, change):
    document = document_of(report)
    paths = list(places(document, MAPS[report]))
    top = {path[0] for path in paths}
    assert top == set(DOCUMENTS[CURRENT[report]]["required"])
    assert len(paths) > len(top) + 2  # also inside of cases, findings, gates
    is_valid = validator(report).is_valid
    assert [path for path in paths if is_valid(spoiled(document, path, change))] == []


@pytest.mark.parametrize(
    ("report", "path", "value"),
    [
        ("gate", ["outcome"], PASSED),  # it has reasons
        ("gate", ["cases", 0, "kind"], "operation"),
        ("gate", ["cases", 0, "clock"], "profiled"),
        ("gate", ["operations", 0, "kind"], "iteration"),
        ("gate", ["operations", 0, "members"], []),
        ("gate", ["operations", 0, "members", 0], ["aten::mm", "forward"]),
        ("gate", ["operations", 0, "p"], 1.5),
        ("gate", ["operations", 0, "base_ns"], -1),
        ("gate", ["operations", 0, "base_ns"], None),
        ("gate", ["variables"], {"new": {}}),
        ("gate", ["packages"], {"torch": ["2.14.0"]}),
        ("gate", ["not_finite"], {LABEL: ["both"]}),
        ("gate", ["exact"], {LABEL: []}),
        ("compare", ["environment"], {"torch": ["2.14.0"]}),
        ("compare", ["cases", 0, "iteration", "kind"], "operation"),
        ("compare", ["cases", 0, "operations", 0, "kind"], "iteration"),
        ("compare", ["cases", 0, "operations", 0, "head_ns"], "1 ms"),
        ("compare", ["cases", 0, "operations", 0, "within"], 0.1),  # it is regressed
        # It is judged by its threshold.
        ("compare", ["cases", 0, "operations", 0, "smallest"], 0.1),
        ("compare", ["cases", 0, "incomparable"], {"torchvision": ["0.30.0", "0.31.0"]}),
        ("bisect", ["gates"], []),
        ("bisect", ["gates", 0, "report", "schema"], 2),
    ],
    ids=str,
)
def test_a_value_that_no_report_has_is_not_valid(report, path, value):
    def put(members, key):
        members[key] = value

    assert complaints(report, spoiled(document_of(report), path, put))


def test_an_inconclusive_gate_has_a_reason():
    document = as_json(concluded(Measured(), only_base=[OTHER]))
    assert (document["outcome"], complaints("gate", document)) == (INCONCLUSIVE, [])
    assert complaints("gate", {**document, "reasons": []})


# ---- The schemas themselves ----------------------------------------------------------------------


def objects(schema: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each description of an object in a schema."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object":
            yield path, schema
        for name, member in schema.items():
            yield from objects(member, f"{path}/{name}")
    elif isinstance(schema, list):
        for number, member in enumerate(schema):
            yield from objects(member, f"{path}/{number}")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_object_is_closed_or_a_map_and_every_property_is_described(name):
    descriptions = list(objects(DOCUMENTS[name]))
    assert descriptions
    for path, schema in descriptions:
        names = set(schema.get("properties", {}))
        assert "additionalProperties" in schema, path
        if not names:
            assert schema["additionalProperties"] is not False, path
            continue
        assert schema["additionalProperties"] is False, path
        assert set(schema.get("required", ())) == names or (
            names == {BASE, HEAD} and "required" not in schema
        ), path
        assert [
            key
            for key, property_ in schema["properties"].items()
            if not property_.get("description")
        ] == [], path


#: How the name of a number ends -> its unit. "memory" and "resident" have their unit in no name,
#: and changes are shares.
UNITS = {
    "_ns": "in nanoseconds",
    "seconds": "in seconds",
    "_bytes": "in bytes",
    "memory": "in bytes",
    "resident": "in bytes",
    "threshold": "as a share",
    "change": "as a share",
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_unit_of_a_number_is_stated(name):
    for path, schema in objects(DOCUMENTS[name]):
        for key, property_ in schema.get("properties", {}).items():
            for ending, unit in UNITS.items():
                if key.endswith(ending) and property_.get("type") != "array":
                    assert unit in property_["description"].lower(), f"{path}/{key}"


@pytest.mark.parametrize(
    ("report", "path", "words"),
    [
        (
            "gate",
            "properties/outcome/enum",
            {verdicts.PASSED, verdicts.REGRESSED, verdicts.INCONCLUSIVE},
        ),
        (
            "gate",
            "properties/reasons/items/properties/kind/enum",
            {
                verdicts.NOISE,
                verdicts.BUDGET,
                verdicts.CONTRADICTION,
                verdicts.UNMEASURED,
                verdicts.MISSING,
                verdicts.BROKEN,
                verdicts.SLOWER,
                verdicts.UNCONFIRMED,
            },
        ),
        (
            "gate",
            "properties/findings/items/properties/verdict/enum",
            {
                verdicts.REGRESSED,
                verdicts.SLOWER,
                verdicts.IMPROVED,
                verdicts.UNCONFIRMED,
                verdicts.CONTRADICTED,
                verdicts.WITHIN,
                verdicts.BELOW_FLOOR,
                verdicts.INCONCLUSIVE,
            },
        ),
        (
            "gate",
            "$defs/estimate/properties/kind/enum",
            {
                kinds.ITERATION,
                kinds.MEAN,
                kinds.OPERATION,
                kinds.REPLACED,
                kinds.ADDED,
                kinds.OUTSIDE_KIND,
                kinds.OTHER,
                kinds.ONCE,
                kinds.MEMORY,
            },
        ),
        (
            "gate",
            "$defs/estimate/properties/clock/enum",
            {words.WALL, words.CPU, words.DEVICE, words.BUSY, words.NO_CLOCK, "profiled"},
        ),
        ("qualify", "properties/outcome/enum", {verdicts.PASSED, verdicts.INCONCLUSIVE}),
        (
            "bisect",
            "properties/outcome/enum",
            {verdicts.PASSED, verdicts.REGRESSED, verdicts.INCONCLUSIVE},
        ),
        (
            "bisect",
            "properties/gates/items/properties/result/enum",
            {bisection.SLOWER, bisection.NOT_SLOWER, bisection.NOT_JUDGED},
        ),
        ("compare", "properties/by/enum", set(GROUPINGS)),
        (
            "compare",
            "properties/problems/items/properties/kind/enum",
            {verdicts.INCOMPARABLE, verdicts.MISSING},
        ),
        (
            "compare",
            "properties/cases/items/properties/incomparable/propertyNames/enum",
            set(REMEDIES),
        ),
        (
            "compare",
            "properties/cases/items/properties/left_out/propertyNames/enum",
            {
                pairing.ABSENT,
                pairing.ELSEWHERE,
                pairing.OTHER_COMMIT,
                pairing.DIRTY,
                pairing.UNVERSIONED,
            },
        ),
        ("compare", "$defs/params/properties/phase/enum", {*params.PHASES, params.CALL}),
        ("compare", "$defs/params/properties/dtype/enum", set(params.DTYPES)),
        ("compare", "$defs/params/properties/step/enum", set(params.STEPS)),
        (
            "compare",
            "$defs/quantity/properties/verdict/enum",
            {
                verdicts.REGRESSED,
                verdicts.IMPROVED,
                verdicts.WITHIN,
                verdicts.SUSPECT,
                verdicts.INCONCLUSIVE,
                verdicts.INCOMPARABLE,
            },
        ),
    ],
)
def test_the_words_of_a_schema_are_those_of_the_code(report, path, words):
    assert (
        set(
            functools.reduce(
                lambda value, step: value[step], path.split("/"), DOCUMENTS[CURRENT[report]]
            )
        )
        == words
    )
