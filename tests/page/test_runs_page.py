"""The page as HTML: one file, the content of each part, names shown as text."""

import math
from dataclasses import replace

import builders
import compiled_builders
import pytest
import strategies
from builders import saved_file
from hostile_builders import NAMES, is_clean
from html_tree import check_one_file, check_references, data_of, read, rows_of, skeleton
from hypothesis import given, settings
from hypothesis import strategies as st
from page_builders import epoch, shown, step
from strategies import ANY_SPEED

from mnistbench.compare.criteria import Criteria, Threshold
from mnistbench.core import units
from mnistbench.core.compiled.compilation import lines_of
from mnistbench.core.operation import OUTSIDE, operation_cells
from mnistbench.core.record import KEY, median_ns
from mnistbench.judging.acceptance import Acceptance
from mnistbench.page.run_view import STACKED
from mnistbench.page.runs_page import runs_page


def page_of(*cases, **changes):
    """The page of one run of these cases."""
    return read(runs_page([shown(saved_file(*cases, **changes))]))


def two_runs():
    base = saved_file(step(), epoch(), datetime="2026-11-20T10:30:00+00:00")
    head = saved_file(step(1.5), step(1.2, batch_size=64), epoch())
    return [shown(base), shown(head, base, name="0002_now.json")]


def cases_of(root, run="r0"):
    """Label of a case -> its cells by column."""
    (table,) = next(
        section for section in root.all("section") if section.attributes["id"] == run
    ).all("table", class_="cases")
    heads = [head.text for head in table.all("th", scope="col")]
    rows = [
        [cell.text.strip() for cell in row.all("th") + row.all("td")]
        for row in table.all("tr", class_="case")
    ]
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def only_case(record):
    [case] = cases_of(page_of(record)).values()
    return case


# ---- one file ------------------------------------------------------------------------------------


def test_the_page_is_one_file():
    check_one_file(read(runs_page(two_runs())))


def test_references_of_the_page_lead_somewhere():
    root = read(runs_page(two_runs()))
    check_references(root)
    runs = {option.attributes["value"] for option in root.all("option")}
    assert runs == {section.attributes["id"] for section in root.all("section", class_="run")}


@pytest.mark.versions
def test_the_page(golden):
    text = runs_page(two_runs())
    golden(text[text.index("<main>") : text.index("</main>")] + "</main>\n", "runs_page.html")


# ---- cases ---------------------------------------------------------------------------------------


def test_times_of_a_case():
    record = step(timing=builders.timing(median_ns=2_000_000, iqr_ns=999_950, rounds=4))
    cases = cases_of(page_of(record, epoch()))
    assert cases["step convnet-b16-cpu on digits"] == {
        "case": "step convnet-b16-cpu on digits",
        "rounds": "4 rounds: 7.00 ms to 8.00 ms",
        "median": units.duration(2_000_000),
        "IQR": "1.00 ms",
        "samples/s": "8,000",
        "first call": "30.0 ms",
        "final accuracy": "50.0 %",
    }
    assert cases["eval convnet-b16-cpu on digits"]["first call"] == units.MISSING
    assert cases["eval convnet-b16-cpu on digits"]["final accuracy"] == units.MISSING


@pytest.mark.parametrize(
    ("changes", "column", "text"),
    [
        (
            {"scalars": builders.scalars(final={"train/accuracy": 50.0, "test/accuracy": 96.1})},
            "final accuracy",
            "96.1 %",
        ),
        (
            {"timing": builders.timing(rounds=1_000)},
            "rounds",
            "1,000 rounds, 4 of them drawn: 7.00 ms to 8.00 ms",
        ),
        ({"rounds_ns": ()}, "rounds", "20 rounds, none of them saved"),
        ({"timing": builders.timing(median_ns=0)}, "median", "0 ns"),
        ({"timing": builders.timing(median_ns=0)}, "samples/s", None),
        ({"timing": builders.timing(median_ns=1e-311)}, "samples/s", None),  # too large a rate
    ],
)
def test_cells_of_a_case(changes, column, text):
    case = only_case(step(**changes))
    assert case.get(column) == text


def test_columns_are_those_that_a_case_has():
    assert not {"first call", "final accuracy", "device elapsed", "device busy", "change"} & set(
        only_case(epoch())
    )
    case = only_case(step(device="cuda", device_ns=(800_000, 810_000, 990_000)))
    assert (case["device elapsed"], "device busy" in case) == ("810 us", False)
    table = builders.op_table(
        builders.op_row(self_device_ns=60_000), view="device", busy_ns=(70_000, 71_000, 90_000)
    )
    case = only_case(step(device="cuda", device_ns=(810_000,), tables=(table,)))
    assert (case["device elapsed"], case["device busy"]) == ("810 us", "71.0 us")


def test_two_tests_of_one_case_are_told_apart():
    second = step(test="bench/test_b.py::test_b", node_id="bench/test_b.py::test_b")
    assert list(cases_of(page_of(step(), second))) == [
        "bench/test_step.py::test_step[convnet-b16-cpu]",
        "bench/test_b.py::test_b",
    ]


def test_a_compiled_case_says_what_became_of_it():
    compilation = compiled_builders.compilation(
        breaks=(compiled_builders.BROKEN,), recompilations=(compiled_builders.AGAIN,)
    )
    lines = [*lines_of(compilation)]
    root = page_of(step(compilation=compilation))
    names = [name.text for name in root.all("dt")]
    texts = [text.text for text in root.all("dd")]
    facts = [text for name, text in zip(names, texts, strict=True) if name == "torch.compile"]
    assert facts == lines
    assert "graph break at model.py:13: Tensor.item() is not traced" in facts
    assert "torch.compile" not in [name.text for name in page_of(step()).all("dt")]


def test_notes_attachments_and_limits_are_shown():
    record = step(
        notes=("no model graph: X",),
        attached={"gpu": {"clocks": [1, 2]}},
        op_fail=("10%", "conv2:5%"),
        case_fail="3%",
    )
    root = page_of(record)
    facts = {
        name.text: value.text for name, value in zip(root.all("dt"), root.all("dd"), strict=True)
    }
    assert facts["note"] == "no model graph: X"
    assert facts["gpu"] == '{"clocks": [1, 2]}'
    assert facts["thresholds of the test"] == "10%, conv2:5%, iteration 3%"
    assert facts["warm, host activities"] == (
        "3 profiled iterations of 9.00 ms (median); sum of its operations 1.59 ms; profiler "
        "overhead 100 ns per operation call"
    )
    assert facts["cold, host activities"] == (
        "1 profiled iteration of 9.00 ms; sum of its operations 9.00 ms; the first of its process"
    )


def test_the_environment_is_the_runs_own():
    machine = builders.environment(
        devices=({"name": "NVIDIA H200", "memory": "150754820096"}, {"memory": "much"})
    )
    root = page_of(step(), mnistbench={"schema": 1, "environment": machine.__dict__})
    values = [value.text for value in root.all("dd")]
    assert "name NVIDIA H200, memory 140 GiB" in values
    assert "memory much" in values
    assert "MALLOC_TRIM_THRESHOLD_=1073741824" in values


def test_parts_without_content_are_left_out():
    without = saved_file(step(), epoch())
    del without[KEY]
    without["machine_info"] = {}
    text = runs_page([shown(without)])
    main = text[text.index("<main>") : text.index("</main>")]
    assert [part for part in ("Environment", "What changed", "Batch sizes") if part in main] == []


# ---- operations ----------------------------------------------------------------------------------


def test_every_operation_is_embedded():
    record = step()
    data = data_of(page_of(record))["r0c0-data"]
    assert [(table["temperature"], table["view"]) for table in data["tables"]] == [
        ("cold", "host"),
        ("warm", "host"),
    ]
    for table, written in zip(record.tables, data["tables"], strict=True):
        assert len(written["rows"]) == len(table.rows)
        for row, (key, calls, self_ns, spread_ns, total_ns, device_ns, memory) in zip(
            table.rows, written["rows"], strict=True
        ):
            assert tuple(data["operations"][key][:3]) == operation_cells(*row.key)
            assert (calls, self_ns, spread_ns) == (
                row.calls,
                row.self_ns("cpu"),
                row.spread_ns("cpu"),
            )
            assert (total_ns, device_ns, memory) == (
                median_ns(row.total_cpu_ns),
                None,
                row.memory_bytes,
            )


def test_a_device_table_has_both_clocks_shapes_and_kernels():
    row = builders.op_row("aten::mm", 6_000, self_device_ns=(1, 5, 9), shapes=["[2, 2]"])
    table = builders.op_table(replace(row, kernels=("sm90_gemm",)), view="device")
    data = data_of(page_of(step(device="cuda", tables=(table,))))["r0c0-data"]
    assert data["tables"][0]["rows"] == [[0, 1.0, 6_000, 4, 6_000, 5, 0]]
    assert data["operations"] == [["aten::mm", "forward", "fc1", "[2, 2]; sm90_gemm"]]


def test_a_case_without_tables_says_where_they_are():
    root = page_of(epoch())
    assert data_of(root) == {}
    assert "see forward convnet-b16-cpu" in [value.text for value in root.all("dd")]


# ---- curves and batch sizes ----------------------------------------------------------------------


def test_train_and_test_share_a_chart_with_their_last_values():
    curves = {
        "train/loss": ((1, 2.0), (9, 0.5)),
        "train/accuracy": ((1, 10.0), (9, 90.0)),
        "test/loss": ((9, 0.4),),
    }
    final = {"train/loss": 0.5, "train/accuracy": 90.0, "test/loss": None}
    root = page_of(step(scalars=builders.scalars(curves=curves, final=final)))
    figures = {
        figure.all("figcaption")[0].text: figure for figure in root.all("figure", class_="lines")
    }
    assert list(figures) == ["loss", "accuracy (%)"]
    assert [" ".join(item.text.split()) for item in figures["loss"].all("li")] == [
        "train last 0.5",
        "test last not finite",
    ]
    assert len(figures["loss"].all("polyline")) == 1  # the test's one value is a dot
    assert [" ".join(item.text.split()) for item in figures["accuracy (%)"].all("li")] == [
        "train last 90.0 %"
    ]


def test_bars_of_batch_sizes_have_three_measures():
    root = page_of(step(), step(4.0, batch_size=64))
    (sizes,) = root.all("details", class_="sizes")
    assert [figure.attributes["data-measure"] for figure in sizes.all("figure", class_="bars")] == [
        "share of an iteration",
        "time per iteration",
        "time per sample",
    ]
    ends = [
        [float(bar.attributes["x"]) + float(bar.attributes["width"]) for bar in figure.all("rect")]
        for figure in sizes.all("figure", class_="bars")
    ]
    share, iteration, sample = [
        (ends_of_figure[len(ends_of_figure) // 2 - 1], ends_of_figure[-1])
        for ends_of_figure in ends
    ]
    assert share[0] == pytest.approx(share[1], abs=0.2)
    assert iteration[0] < iteration[1]
    assert sample[0] > sample[1]
    titles = [title.text for title in sizes.all("figure", class_="bars")[0].all("title")]
    assert titles[0] == "b16, aten::convolution_backward, backward conv2: 1.23 ms, 77.9 %"
    assert [title.split(", ")[1].split(":")[0] for title in titles if "outside" in title] == [
        "outside operations"
    ] * 2


def test_the_table_of_batch_sizes_has_the_colours_of_the_bars():
    rows = [
        builders.op_row(f"aten::op{number}", 1_000 * (20 - number)) for number in range(STACKED + 2)
    ]
    tables = (builders.op_table(*rows, builders.op_row(OUTSIDE, 500, calls=0)),)
    root = page_of(step(tables=tables), step(batch_size=64, tables=tables))
    (sizes,) = root.all("details", class_="sizes")
    chips = [chip.attributes["class"].split()[1] for chip in sizes.all("span", class_="chip")]
    assert chips == [
        *(f"part{number}" for number in range(1, STACKED + 1)),
        "partother",
        "partoutside",
    ]
    assert {rect.attributes["class"] for rect in sizes.all("rect")} == {*chips}


# ---- what changed --------------------------------------------------------------------------------


def test_a_compared_run_has_a_table_per_case():
    base = saved_file(step())
    head = saved_file(step(1.5), epoch())
    run = shown(head, base, Criteria(op_fail=(Threshold("", 0.1),)))
    root = read(runs_page([run]))
    (ledger,) = root.all("details", class_="ledger")
    assert ledger.all("summary")[0].text == "step convnet-b16-cpu on digits: +50.0 %, regressed"
    cells = rows_of(ledger)
    assert cells[1][:7] == [
        "aten::convolution_backward",
        "backward",
        "conv2",
        "1.23 ms",
        "1.85 ms",
        "+617 us",
        "+50.0 %",
    ]
    assert cells[-1][0] == "wall time of one iteration"
    assert f"thresholds: regressed: {len(run.judgement.regressions)}" in [
        line.text for line in root.all("p", class_="line")
    ]
    assert cases_of(root)["step convnet-b16-cpu on digits"]["change"] == "+50.0 %, regressed"
    assert cases_of(root)["eval convnet-b16-cpu on digits"]["change"] == units.MISSING


def test_a_case_without_operations_is_compared_as_a_whole():
    root = read(
        runs_page(
            [
                shown(
                    saved_file(epoch(timing=builders.timing(median_ns=9_000_000))),
                    saved_file(epoch()),
                )
            ]
        )
    )
    assert root.all("details", class_="ledger") == []
    titles = [heading.text for heading in root.all("h4")]
    assert "cases without operation tables: wall time of one iteration" in titles


# ---- names ---------------------------------------------------------------------------------------


def hostile(name, scale=1):
    """A run in which everything that a file may name is called that."""
    rows = [
        builders.op_row(name, 900_000 * scale, module="fc1", shapes=[name]),
        builders.op_row("aten::mm", 800_000, phase=name, module="fc2"),
        builders.op_row("aten::add", 700_000 * scale, module=name),
        builders.op_row(f"{name}{scale}", 500_000, phase="backward", module=name),
    ]
    common = {
        "workload": name,
        "dataset": name,
        "scalars": builders.scalars(
            dataset=name,
            curves={name: ((1, 2.0), (2, 1.0)), f"train/{name}": ((1, 2.0), (2, 1.0))},
            final={name: 1.0},
        ),
        "notes": (name,),
        "attached": {name: {name: [name]}},
        "tables": (builders.op_table(*rows),),
        "tables_in": name,
    }
    environment = {
        **saved_file()[KEY]["environment"],
        "cpu_model": name,
        "platform": f"{name}{scale}",
        "allocator": {name: name},
        "devices": [{"name": name, name: name, "memory": name}],
    }
    return saved_file(
        builders.case_record(**common, node_id=f"{name}::test[{name}]"),
        builders.case_record(**common, batch_size=64, node_id=name),
        builders.case_record(**{**common, "tables": ()}, phase="eval", node_id=f"{name}{scale}"),
        mnistbench={"schema": 1, "environment": environment},
        commit_info={"id": name, "dirty": True, "branch": name},
        datetime=name,
    )


@pytest.fixture(scope="module")
def plain():
    criteria = Criteria(
        op_fail=(Threshold("plain", 0.1),),
        accept=(Acceptance("*:plain", 0.5),),
        reason="because plain",
    )
    return runs_page(
        [
            shown(hostile("plain")),
            shown(hostile("plain", 2), hostile("plain"), criteria, name="plain.json"),
        ]
    )


@pytest.mark.versions
@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_are_shown_as_text(name, plain):
    criteria = Criteria(
        op_fail=(Threshold(name, 0.1),),
        accept=(Acceptance(f"*:{name}", 0.5),),
        reason=f"because {name}",
    )
    text = runs_page(
        [
            shown(hostile(name)),
            shown(hostile(name, 2), hostile(name), criteria, name=f"{name}.json"),
        ]
    )
    assert is_clean(text)
    assert skeleton(read(text)) == skeleton(read(plain))
    operations = {
        row[0]
        for data in data_of(read(text)).values()
        if isinstance(data, dict)
        for row in data["operations"]
    }
    assert units.printable(name) in operations


@settings(ANY_SPEED, max_examples=25)
@given(st.lists(strategies.case_records(), min_size=1, max_size=3), strategies.environments())
def test_any_saved_run_is_shown(cases, environment):
    measured = [replace(case, timing=case.timing or builders.timing()) for case in cases]
    saved = saved_file(*measured, mnistbench={"schema": 1, "environment": environment.__dict__})
    root = read(runs_page([shown(saved, saved)]))
    assert len(root.all("tr", class_="case")) == len(measured)
    assert len([name for name in data_of(root) if name.endswith("-data")]) == sum(
        bool(case.tables) for case in measured
    )


# ---- cases without operations --------------------------------------------------------------------


def plain_benchmark(name="test_x", **changes):
    stats = {
        "median": 2e-3,
        "iqr": 1e-4,
        "min": 1e-3,
        "mean": 2.5e-3,
        "stddev": 5e-4,
        "rounds": 3,
        "data": [1e-3, 2e-3, 3e-3],
    }
    benchmark = {
        "fullname": f"test_a.py::{name}",
        "name": name,
        "extra_info": {"size": 5},
        "stats": stats,
    }
    return {**benchmark, **changes}


def mixed_file(scale=1.0):
    """A run with a case that has a table and, before and after it, ones that have none."""
    document = saved_file(step(scale))
    [recorded] = document["benchmarks"]
    document["benchmarks"] = [plain_benchmark("test_first"), recorded, plain_benchmark("test_last")]
    return document


def test_cases_with_and_without_operations_are_rows_of_one_table():
    text = runs_page(
        [shown(mixed_file()), shown(mixed_file(2.0), mixed_file(), name="0002_now.json")]
    )
    labels = ["test_a.py::test_first", "step convnet-b16-cpu on digits", "test_a.py::test_last"]
    positions = [text.index(f'data-value="{label}"') for label in labels]
    assert positions == sorted(positions)
    assert text.count('class="operations"') == 2  # of the case with operations, in each run
    assert "+100.0 %" in text


def test_a_run_without_operations_has_a_page_of_its_cases():
    document = saved_file(
        benchmarks=[plain_benchmark("test_a"), plain_benchmark("test_b", extra_info=None)]
    )
    del document[KEY]
    text = runs_page([shown(document, document)])
    assert "Times of one iteration. Open a case for its statistics." in text
    assert "AMD EPYC 9R14" in text
    assert "median 2.00 ms, IQR 100 us, min 1.00 ms, mean 2.50 ms, SD 500 us, 3 rounds" in text
    assert "3 rounds: 1.00 ms to 3.00 ms" in text  # saved with --benchmark-save-data
    assert "<dt>size</dt><dd><code>5</code></dd>" in text
    assert 'class="operations"' not in text
    assert "within 10.0 %" in text


@pytest.mark.parametrize(
    ("stats", "expected"),
    [
        ({"median": 2e-3}, "median 2.00 ms, number of rounds not saved"),
        (
            {"median": 2e-3, "min": None, "mean": math.nan, "rounds": "x"},
            "median 2.00 ms, number of rounds not saved",
        ),
        ({"median": 2e-3, "iqr": 1e-4, "rounds": 1}, "median 2.00 ms, 1 round"),
    ],
)
def test_statistics_that_another_program_left_out_are_left_out(stats, expected):
    assert f"<dd>{expected}</dd>" in runs_page(
        [shown(saved_file(benchmarks=[plain_benchmark(stats=stats)]))]
    )


def test_benchmarks_without_a_time_are_left_out_of_the_page_as_of_the_comparison():
    damaged = [
        plain_benchmark("test_nan", stats={"median": math.nan}),
        plain_benchmark("test_nothing", stats=None),
        7,
    ]
    text = runs_page(
        [
            shown(
                saved_file(
                    benchmarks=[*damaged, plain_benchmark("test_good"), *mixed_file()["benchmarks"]]
                )
            )
        ]
    )
    assert "test_good" in text
    assert "test_nan" not in text


def test_benchmarks_of_one_name_are_two_rows():
    text = runs_page([shown(saved_file(benchmarks=[plain_benchmark(), plain_benchmark()]))])
    assert 'data-value="test_a.py::test_x"' in text
    assert 'data-value="test_a.py::test_x (2)"' in text


@pytest.mark.parametrize(
    ("folders", "references"),
    [
        (("a", "b"), ["a/0001", "b/0001"]),
        (("x/m", "y/m"), ["x/m/0001_base.json", "y/m/0001_base.json"]),
    ],
)
def test_runs_of_one_number_have_their_folders(folders, references):
    page = read(
        runs_page(
            [shown(saved_file(step()), name=f"{folder}/0001_base.json") for folder in folders]
        )
    )
    options = [option.text.rpartition(", ")[2] for option in page.all("option")]
    assert options[:2] == references[::-1]
    assert all(f"{folder[-1]}/0001_base.json" in page.text for folder in folders)
