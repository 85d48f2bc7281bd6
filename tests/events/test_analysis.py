"""Busy, idle, exposed and starved time of an accelerator.

A folder with the trace of each rank is one run.
"""

from pathlib import Path

import pytest
import trace_builders as build

from mnistbench.core.errors import RecordError, UsageError
from mnistbench.events.analysis import analyse, read_ranks
from mnistbench.events.report import ranks_report
from mnistbench.showing.terminal import draw_report


def test_exposed_communication_and_copies(timeline):
    line = timeline(
        build.kernel("gemm", 0, 10),
        build.kernel(build.NCCL, 5, 10, stream=2),
        build.kernel("Memcpy HtoD", 12, 10, stream=3, category="gpu_memcpy"),
        build.kernel("Memset", 30, 2, category="gpu_memset"),
    )
    assert (line.span_ns, line.busy_ns, line.idle_ns) == (32_000, 24_000, 8_000)
    assert (line.computation_ns, line.communication_ns, line.exposed_communication_ns) == (
        12_000,
        10_000,
        5_000,
    )
    assert (line.copies_ns, line.exposed_copies_ns) == (10_000, 7_000)
    assert (line.kernels, line.copies) == (2, 2)


def test_starved_is_idle_without_a_waiting_kernel(timeline):
    """From 10 to 40 us nothing runs; the launch of the next kernel ends at 27 us."""
    line = timeline(
        build.launch(-5, 2, 1),
        build.kernel("a", 0, 10, correlation=1),
        build.launch(25, 2, 2),
        build.kernel("b", 40, 10, correlation=2),
    )
    assert (line.idle_ns, line.starved_ns, line.launches) == (30_000, 17_000, 2)


def test_a_kernel_that_waits_long_hides_other_gaps(timeline):
    line = timeline(
        build.launch(1, 1, 1),
        build.launch(2, 1, 2),
        build.launch(3, 1, 3),
        build.kernel("a", 5, 5, correlation=1),
        build.kernel("b", 20, 5, correlation=2),
        build.kernel("c", 40, 5, correlation=3),
    )
    assert (line.idle_ns, line.starved_ns) == (25_000, 0)


def test_events_without_a_launch_are_stated(timeline):
    line = timeline(build.kernel("a", 5, 5), build.kernel("b", 20, 5))
    assert (line.unlinked, line.unlinked_ns, line.starved_ns, line.launches) == (
        2,
        10_000,
        10_000,
        0,
    )


def test_each_accelerator_has_a_timeline(tmp_path):
    events = [build.kernel("a", 5, 5, device=0), build.kernel("b", 20, 5, device=1)]
    lines = analyse(
        build.trace_file(tmp_path, events, devices=[build.H100, build.H100])
    ).timeline.devices
    assert [(line.device, line.span_ns, line.name) for line in lines] == [
        ("0", 5_000, build.H100),
        ("1", 5_000, build.H100),
    ]


# ---- Ranks ---------------------------------------------------------------------------------------


def save_rank(folder, rank, *, compute_us, ranks=2, name=None):
    """A rank that computes and then waits in a collective, until 1,000 us have passed."""
    events = [
        build.step(1, 0, 1000),
        build.op("aten::mm", 10, 20, external=1),
        build.kernel("gemm", 0, compute_us, external=1),
        build.kernel(build.NCCL, compute_us, 1000 - compute_us),
    ]
    distributed = {} if rank is None else {"distributedInfo": {"rank": rank, "world_size": ranks}}
    return build.trace_file(folder, events, name=name or f"rank{rank}.json.gz", **distributed)


def read(folder, progress=lambda _: None):
    return read_ranks(folder, progress)


def test_the_slowest_rank_has_the_longest_time_outside_collectives(tmp_path):
    for rank, compute_us in ((0, 300), (1, 700), (2, 500)):
        save_rank(tmp_path, rank, compute_us=compute_us, ranks=3)
    run = read(tmp_path)
    assert [rank.timeline.outside_collectives_ns for rank in run.ranks] == [
        300_000,
        700_000,
        500_000,
    ]
    assert run.slowest.file.rank == 1


def test_ranks_of_the_cpu_communicate_in_ranges(tmp_path):
    for rank, waits in ((0, 600), (1, 100)):
        events = [
            build.step(1, 0, 1000),
            build.op("aten::mm", 10, 20),
            build.range_("gloo:all_reduce", 50, waits),
        ]
        build.trace_file(
            tmp_path, events, name=f"{rank}.json", distributedInfo={"rank": rank, "world_size": 2}
        )
    assert [rank.timeline.outside_collectives_ns for rank in read(tmp_path).ranks] == [
        400_000,
        900_000,
    ]


def test_ranks_are_in_order_and_missing_ones_are_named(tmp_path):
    for rank in (3, 0, 2):
        save_rank(tmp_path, rank, compute_us=100, ranks=5, name=f"{9 - rank}.json")
    (tmp_path / "notes.txt").write_text("not a trace")
    announced = []
    run = read(tmp_path, announced.append)
    assert ([rank.file.rank for rank in run.ranks], run.missing) == ([0, 2, 3], (1, 4))
    assert announced == ["6.json", "7.json", "9.json"]


@pytest.mark.parametrize(
    ("ranks", "complaint"),  # of each file: rank, number of ranks
    [
        ([], "has no file that ends in .json or .json.gz"),
        ([(None, 2)], "has no distributedInfo with a rank, so its rank is not known"),
        ([(2, 2)], "is rank 2 of 2, which cannot be"),
        ([(-1, 2)], "is rank -1 of 2, which cannot be"),
        ([(0, 2), (0, 2)], "are both rank 0"),
        ([(0, 2), (1, 8)], "with 2 and 8 ranks"),
    ],
)
def test_files_that_are_not_one_run(tmp_path, ranks, complaint):
    for number, (rank, number_of_ranks) in enumerate(ranks):
        save_rank(tmp_path, rank, compute_us=1, ranks=number_of_ranks, name=f"{number}.json")
    with pytest.raises(UsageError, match=complaint):
        read(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '[{"bs": 32}]',
        '{"schema": 1, "nodes": []}',
        "3",
        '{"traceEvents": []}',
        "",
        "{",
        "// settings\n{}",
        '{"a": 1}{"a": 2}',
    ],
)
def test_other_files_in_the_folder_are_left_out_and_named(tmp_path, text):
    for rank in range(2):
        save_rank(tmp_path, rank, compute_us=1)
    (tmp_path / "execution_details.json").write_text(text)
    run = read(tmp_path)
    assert ([rank.file.rank for rank in run.ranks], run.missing) == ([0, 1], ())
    assert run.other_files == ("execution_details.json",)


def test_a_process_without_an_accelerator_is_no_rank(tmp_path):
    """vLLM writes a trace of its front-end beside those of the ranks."""
    for rank in range(2):
        save_rank(tmp_path, rank, compute_us=100, ranks=2)
    build.trace_file(tmp_path, [build.op("aten::to", 10, 20)], name="a_front_end.json", devices=())
    run = read(tmp_path)
    assert ([rank.file.rank for rank in run.ranks], run.without_rank) == (
        [0, 1],
        ("a_front_end.json",),
    )
    out = draw_report(ranks_report(run, 3, "op,module", {}).blocks)
    assert "Left out: a_front_end.json: no rank and no accelerator" in out


def test_a_process_without_a_rank_may_be_one_where_no_rank_has_an_accelerator(tmp_path):
    for number, info in enumerate(({"rank": 0, "world_size": 2}, {})):
        build.trace_file(
            tmp_path, [build.op("aten::to", 10, 20)], name=f"{number}.json", distributedInfo=info
        )
    with pytest.raises(UsageError, match="has no distributedInfo with a rank"):
        read(tmp_path)


def test_a_folder_with_other_files_alone_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(RecordError, match=r"config\.json: has no list of traceEvents"):
        read(tmp_path)


def test_a_damaged_rank_is_named(tmp_path):
    save_rank(tmp_path, 0, compute_us=1)
    Path(tmp_path, "rank1.json").write_text('{"traceEvents": [{"ph": "X"')
    with pytest.raises(RecordError, match=r"rank1\.json"):
        read(tmp_path)
