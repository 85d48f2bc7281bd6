"""Findings -> the sentences that explain them: which is said is decided here by the numbers, its wording lies in texts/.

Pure: the same findings give the same sentences. Where a number is missing, the sentence says what cannot be said.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mnistbench.core.record import OUTSIDE
from mnistbench.lab.findings import TRAINED, UNTRAINED, Findings
from mnistbench.lab.report.sheets import Cell, Quantity, Sheet, Sheets, rate, ratio, share

#: Times that differ by less than this factor are called the same.
SAME = 1.05
#: A sample that takes less than this many times the best batch size's is about as quick.
HELPS = 1.10
#: Two ratios within this factor of each other go together.
TOGETHER = 1.5
#: A rate of at least this part of the measured ceiling is near it.
NEAR = 0.5
#: A first call that takes less than this many warm ones costs nothing worth a sentence.
COSTLY = 1.5
#: An interquartile range of at least this part of the median is likely another program's doing: quiet machines have 2 to 15 %.
DISTURBED = 0.5
#: An operation with at least this share of the time dominates.
MOST = 0.5
#: The shares that one part of a first call must have of what it cost to be named for it.
SPENT = 0.3


@dataclass(frozen=True)
class Name:
    """What a machine calls something: shown as it is."""

    text: str


@dataclass(frozen=True)
class Noun:
    """A word that every language has its own for: a key of its texts, below ``noun``."""

    key: str


@dataclass(frozen=True)
class Place:
    """Where something ran."""

    device: str
    threads: int


Word = int | Name | Noun | Place


@dataclass(frozen=True)
class Sentence:
    """A sentence: the key of its wording, the words and the numbers that go into it."""

    key: str
    words: Mapping[str, Word] = field(default_factory=dict)
    numbers: Mapping[str, Quantity] = field(default_factory=dict)


def main_place(findings: Findings, device: str) -> Place:
    """Return the place that tables of a device were measured at."""
    return Place(device, findings.environment.threads)


def convolutions(sheet: Sheet) -> list[str]:
    """Return the operations of a table that belong to a convolution: it goes through four of them."""
    return sorted({str(name) for name in sheet.values("operation") if "conv" in str(name).lower()})


def self_times(sheet: Sheet) -> tuple[Quantity | None, Quantity | None]:
    """Return the self time of convolution and of addmm in a table."""
    return sheet.total("self_ns", operation=convolutions(sheet)), sheet.total("self_ns", operation="aten::addmm")


def best_view(sheets: Sheets, phase: str, device: str, batch_size: int) -> Sheet | None:
    """Return the table that says where the time of a device goes, by its own clock; None where that cannot be read.

    The host of an accelerator only launches the work: its times are not the work's.
    """
    return sheets.operations.get((phase, device, "host" if device == "cpu" else "device", batch_size))


# ---- Operations ------------------------------------------------------------------------------------------------------


def operations(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Say which operation dominates, and why."""
    for device in findings.settings.devices:
        place = main_place(findings, device)
        tables = {
            size: sheet for size in findings.settings.batch_sizes if (sheet := best_view(sheets, "forward", device, size))
        }
        if not tables:
            yield Sentence("operations_missing", {"place": place})
            continue
        largest = max(tables)
        for phase in ("forward", "step"):
            if sheet := best_view(sheets, phase, device, largest):
                yield _dominating(sheet, place, phase, largest)
        yield from _convolution_and_addmm(sheets, tables[largest], place, largest)
        if len(tables) > 1:
            yield from _ratio_over_batches(tables, place)


def top_operation(sheet: Sheet) -> str:
    """Return the operation with the most self time, over all its modules; empty where there is none."""
    names = {str(name) for name in sheet.values("operation")} - {OUTSIDE}
    times = {name: quantity.value for name in names if (quantity := sheet.total("self_ns", operation=name))}
    return max(times, key=lambda name: (times[name], name), default="")


def _dominating(sheet: Sheet, place: Place, phase: str, size: int) -> Sentence:
    top, whole = top_operation(sheet), sheet.total("self_ns")
    words: dict[str, Word] = {"place": place, "phase": Noun(phase), "size": size}
    part = share(sheet.total("self_ns", operation=top), whole) if top else None
    if not part or not whole:
        return Sentence("operations_missing", {"place": place})
    key = "dominates" if part.value >= MOST else "leads"
    return Sentence(key, words | {"operation": Name(top)}, {"share": part, "whole": whole})


def _convolution_and_addmm(sheets: Sheets, sheet: Sheet, place: Place, size: int) -> Iterator[Sentence]:
    names: dict[str, list[str]] = {"convolution": convolutions(sheet), "addmm": ["aten::addmm"]}
    times = {noun: sheet.total("self_ns", operation=found) for noun, found in names.items()}
    for noun, time in times.items():
        if not time or not time.value:
            yield Sentence("not_in_table", {"place": place, "size": size, "what": Noun(noun)})
            return
    larger, smaller = sorted(times, key=lambda noun: -times[noun].value)  # type: ignore[union-attr]  # none is None
    words: dict[str, Word] = {"place": place, "size": size, "larger": Noun(larger), "smaller": Noun(smaller)}
    time = ratio(times[larger], times[smaller])
    assert time is not None
    flops, moved = (
        ratio(sheet.total(column, operation=names[larger]), sheet.total(column, operation=names[smaller]))
        for column in ("flops", "moved_bytes")
    )
    if not flops or not moved:
        yield Sentence("ratio_uncounted", words, {"time": time})
        return
    yield Sentence(
        f"ratio_{_follows(time.value, flops.value, moved.value)}", words, {"time": time, "flops": flops, "bytes": moved}
    )
    for noun in (larger, smaller):
        yield _against_ceiling(sheets, sheet, place, size, noun, names[noun])


def _follows(time: float, flops: float, moved: float) -> str:
    """Say which ratio the ratio of times goes with."""
    by_flops, by_bytes = (max(time, other) / min(time, other) <= TOGETHER if other > 0 else False for other in (flops, moved))
    if by_flops and by_bytes:
        return "follows_both"
    if by_flops or by_bytes:
        return "follows_flops" if by_flops else "follows_bytes"
    if time > max(flops, moved):
        return "above_both"
    return "below_both" if time < min(flops, moved) else "between"


def _against_ceiling(sheets: Sheets, sheet: Sheet, place: Place, size: int, noun: str, names: list[str]) -> Sentence:
    time = sheet.total("self_ns", operation=names)
    flops = rate(sheet.total("flops", operation=names), time)
    moved = rate(sheet.total("moved_bytes", operation=names), time)
    flops_ceiling = sheets.ceilings.total("flops_per_s", device=place.device)
    bytes_ceiling = sheets.ceilings.total("bytes_per_s", device=place.device)
    words: dict[str, Word] = {"place": place, "size": size, "what": Noun(noun)}
    if not (flops and moved and flops_ceiling and bytes_ceiling):
        return Sentence("ceiling_missing", words)
    near_flops, near_bytes = flops.value >= NEAR * flops_ceiling.value, moved.value >= NEAR * bytes_ceiling.value
    key = "ceiling_flops" if near_flops else "ceiling_bytes" if near_bytes else "ceiling_neither"
    numbers = {"flops": flops, "bytes": moved, "flops_ceiling": flops_ceiling, "bytes_ceiling": bytes_ceiling}
    return Sentence(key, words, numbers)


def _ratio_over_batches(tables: Mapping[int, Sheet], place: Place) -> Iterator[Sentence]:
    small, large = min(tables), max(tables)
    before, after = self_times(tables[small]), self_times(tables[large])
    first, last = ratio(*before), ratio(*after)
    convolution, addmm = (ratio(now, then) for now, then in zip(after, before, strict=True))
    if not (first and last and convolution and addmm):
        return
    change = _direction(last.value, first.value, TOGETHER)
    words: dict[str, Word] = {"place": place, "small": small, "large": large}
    growth = {} if change == "same" else {"convolution": convolution, "addmm": addmm}
    yield Sentence(f"ratio_over_batches_{change}", words, {"first": first, "last": last, **growth})


def _direction(now: float, before: float, factor: float) -> str:
    if now >= before * factor:
        return "rises"
    return "falls" if now * factor <= before else "same"


# ---- Batch sizes -----------------------------------------------------------------------------------------------------


def batches(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Say how time per batch and per sample move with the batch size, where they stop improving, and if they can be trusted."""
    yield from _disturbed(findings, sheets)
    if len(findings.settings.batch_sizes) < 2:
        yield Sentence("one_batch_size", {"size": findings.settings.batch_sizes[0]})
        return
    for device in findings.settings.devices:
        place = main_place(findings, device)
        for phase in ("step", "forward"):
            yield from _over_batches(sheets.calls, place, phase)
        yield from _calls_over_batches(findings, sheets, place)
        for phase in ("train", "eval"):
            yield from _epoch_over_batches(sheets.epochs, place, phase)


def _disturbed(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Say of the calls that spread most that something else used the machine, where that is what it looks like."""
    spreads = []
    for call in findings.call_times:
        where: dict[str, Cell] = {
            "device": call.device, "threads": call.threads, "phase": call.phase, "batch_size": call.batch_size,
        }  # fmt: skip
        iqr, median = (sheets.calls.total(column, **where) for column in ("iqr_ns", "median_ns"))
        if iqr and median and iqr.value >= DISTURBED * median.value:
            place = Place(call.device, call.threads)
            words: dict[str, Word] = {"place": place, "phase": Noun(call.phase), "size": call.batch_size}
            spreads.append((iqr.value / median.value, Sentence("disturbed", words, {"iqr": iqr, "median": median})))
    if spreads:
        yield max(spreads, key=lambda spread: spread[0])[1]


def _over_batches(sheet: Sheet, place: Place, phase: str) -> Iterator[Sentence]:
    where: dict[str, Cell] = {"device": place.device, "threads": place.threads, "phase": phase}
    words: dict[str, Word] = {"place": place, "phase": Noun(phase)}
    sizes = sorted(int(str(size)) for size in sheet.values("batch_size", **where))
    if len(sizes) < 2:
        yield Sentence("batches_missing", words)
        return
    batch = {size: sheet.total("median_ns", **where, batch_size=size) for size in sizes}
    sample = {size: sheet.total("sample_ns", **where, batch_size=size) for size in sizes}
    small, large = sizes[0], sizes[-1]
    batch_ratio, sample_ratio = ratio(batch[large], batch[small]), ratio(sample[small], sample[large])
    if not (batch_ratio and sample_ratio and sample[small] and sample[large]):
        yield Sentence("batches_missing", words)
        return
    of_batch, of_sample = _direction(batch_ratio.value, 1, SAME), _direction(1 / sample_ratio.value, 1, SAME)
    numbers = {"batch_ratio": batch_ratio, "first": sample[small], "last": sample[large]}
    key = f"batch_{of_batch}_sample_{of_sample}"
    yield Sentence(key, words | {"small": small, "large": large}, {k: q for k, q in numbers.items() if q})
    yield _where_it_stops(sizes, sample, words)


def _where_it_stops(sizes: list[int], sample: Mapping[int, Quantity | None], words: Mapping[str, Word]) -> Sentence:
    values = {size: quantity.value for size, quantity in sample.items() if quantity}
    best = min(values, key=lambda size: (values[size], size))
    last = sizes[-1]
    if values[last] > values[best] * SAME and (worse := ratio(sample[last], sample[best])):
        return Sentence("best_at", {**words, "best": best, "large": last}, {"worse": worse})
    enough = min(size for size in values if values[size] <= values[best] * HELPS)
    if enough == last and (gain := ratio(sample[sizes[-2]], sample[last])):
        return Sentence("still_improving", {**words, "before": sizes[-2], "large": last}, {"gain": gain})
    gain = ratio(sample[enough], sample[last])
    assert gain is not None
    return Sentence("stops_improving", {**words, "enough": enough, "large": last}, {"gain": gain})


def _calls_over_batches(findings: Findings, sheets: Sheets, place: Place) -> Iterator[Sentence]:
    """Give the reason: what a call of an operation costs by itself is shared by more samples."""
    sizes = findings.settings.batch_sizes
    small, large = (
        sheets.profiler.total("operation_calls", phase="step", device=place.device, view="host", batch_size=size)
        for size in (sizes[0], sizes[-1])
    )
    if not small or not large:
        return
    key = "calls_same" if _direction(large.value, small.value, SAME) == "same" else "calls_differ"
    yield Sentence(key, {"place": place, "small": sizes[0], "large": sizes[-1]}, {"first": small, "last": large})


def _epoch_over_batches(sheet: Sheet, place: Place, phase: str) -> Iterator[Sentence]:
    where: dict[str, Cell] = {"device": place.device, "threads": place.threads, "phase": phase}
    sizes = sorted(int(str(size)) for size in sheet.values("batch_size", **where))
    words: dict[str, Word] = {"place": place, "phase": Noun(phase)}
    if len(sizes) < 2:
        yield Sentence("epochs_missing", words)
        return
    first, last = (sheet.total("epoch_ns", **where, batch_size=size) for size in (sizes[0], sizes[-1]))
    times = ratio(first, last)
    if not (first and last and times):
        yield Sentence("epochs_missing", words)
        return
    key = f"epoch_{_direction(last.value, first.value, SAME)}"
    yield Sentence(key, words | {"small": sizes[0], "large": sizes[-1]}, {"first": first, "last": last})


# ---- Devices ---------------------------------------------------------------------------------------------------------


def devices(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Hold CPU against accelerator; without one, one thread against all."""
    accelerator = findings.settings.accelerator
    if not accelerator:
        yield Sentence("no_accelerator")
        yield from _threads(findings, sheets)
        return
    if "cpu" not in findings.settings.devices:
        yield Sentence("no_cpu", {"device": Name(accelerator)})
        return
    cpu, other = main_place(findings, "cpu"), main_place(findings, accelerator)
    for phase in ("train", "eval"):
        found = {
            size: quantity
            for size in findings.settings.batch_sizes
            if (quantity := ratio(_epoch(sheets, cpu, phase, size), _epoch(sheets, other, phase, size)))
        }
        words: dict[str, Word] = {"phase": Noun(phase), "place": other, "cpu": cpu}
        if not found:
            yield Sentence("speedup_missing", words)
            continue
        small, large = min(found), max(found)
        ahead = [size for size, quantity in found.items() if quantity.value >= SAME]
        key = "speedup_all" if len(ahead) == len(found) else "speedup_some" if ahead else "speedup_none"
        if len(found) == 1:
            yield Sentence(f"{key}_one", words | {"size": small}, {"first": found[small]})
        else:
            numbers = {"first": found[small], "last": found[large]}
            yield Sentence(key, words | {"small": small, "large": large}, numbers)
    for size in dict.fromkeys((findings.settings.batch_sizes[0], findings.settings.batch_sizes[-1])):
        yield _idle(sheets, other, size)
    yield from _where_time_moves(findings, sheets, cpu, other)


def _epoch(sheets: Sheets, place: Place, phase: str, size: int) -> Quantity | None:
    where: dict[str, Cell] = {"device": place.device, "threads": place.threads, "phase": phase, "batch_size": size}
    return sheets.epochs.total("epoch_ns", **where)


def _idle(sheets: Sheets, place: Place, size: int) -> Sentence:
    """Say whether the accelerator waits for its host: a step is bound by launches where it is idle for most of it."""
    where: dict[str, Cell] = {"phase": "step", "device": place.device, "view": "device", "batch_size": size}
    busy, step = (sheets.profiler.total(column, **where) for column in ("busy_ns", "untraced_ns"))
    words: dict[str, Word] = {"place": place, "size": size}
    if not (busy and step):
        return Sentence("idle_missing", words)
    return Sentence("idle" if busy.value < MOST * step.value else "busy", words, {"busy": busy, "step": step})


def _where_time_moves(findings: Findings, sheets: Sheets, cpu: Place, other: Place) -> Iterator[Sentence]:
    size = findings.settings.batch_sizes[-1]
    tables = [best_view(sheets, "step", place.device, size) for place in (cpu, other)]
    if not (tables[0] and tables[1]):
        return
    tops = [top_operation(table) for table in tables if table]
    shares = [share(t.total("self_ns", operation=top), t.total("self_ns")) for t, top in zip(tables, tops, strict=True) if t]
    if not all(tops) or not shares[0] or not shares[1]:
        return
    words: dict[str, Word] = {"cpu": cpu, "place": other, "size": size, "first": Name(tops[0]), "second": Name(tops[1])}
    key = "same_top" if tops[0] == tops[1] else "other_top"
    yield Sentence(key, words, {"first_share": shares[0], "second_share": shares[1]})


def _threads(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    many = findings.environment.threads
    if many < 2:
        yield Sentence("one_thread")
        return
    for size in dict.fromkeys((findings.settings.batch_sizes[0], findings.settings.batch_sizes[-1])):
        one, all_ = (
            sheets.calls.total("median_ns", device="cpu", threads=threads, phase="step", batch_size=size)
            for threads in (1, many)
        )
        words: dict[str, Word] = {"size": size, "threads": many}
        if not (one and all_):
            yield Sentence("threads_missing", words)
            continue
        faster = _direction(one.value, all_.value, SAME)
        key = {"rises": "threads_help", "same": "threads_same", "falls": "threads_hurt"}[faster]
        gain = ratio(all_, one) if key == "threads_hurt" else ratio(one, all_)
        yield Sentence(key, words, {"one": one, "all": all_, **({"gain": gain} if gain else {})})


# ---- First call ------------------------------------------------------------------------------------------------------


def first_calls(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Say what the first call costs, what it is spent on, and whether training changes it."""
    found = [(call.device, call.phase, call.batch_size) for call in findings.first_calls if call.weights == UNTRAINED]
    if not found:
        yield Sentence("first_missing")
    for device, phase in dict.fromkeys((device, phase) for device, phase, _ in found):
        size = min(size for d, p, size in found if (d, p) == (device, phase))
        yield from _first_call(sheets, main_place(findings, device), phase, size)


def _first_call(sheets: Sheets, place: Place, phase: str, size: int) -> Iterator[Sentence]:
    where: dict[str, Cell] = {"device": place.device, "phase": phase, "batch_size": size}
    words: dict[str, Word] = {"place": place, "phase": Noun(phase), "size": size}
    first, warm = (sheets.first_calls.total(column, **where, weights=UNTRAINED) for column in ("first_ns", "warm_ns"))
    times = ratio(first, warm)
    if not (first and warm and times):
        yield Sentence("first_unknown", words)
        return
    costly = times.value >= COSTLY
    yield Sentence("first_costs" if costly else "first_free", words, {"first": first, "warm": warm, "times": times})
    if costly:
        yield _spent_on(sheets.first_operations[phase, place.device, size, UNTRAINED], words)
    after = sheets.first_calls.total("first_ns", **where, weights=TRAINED)
    if not after:
        yield Sentence("trained_missing", words)
        return
    if costly:
        key = "trained_same" if start_costs(first, after, warm) else "trained_differs"
    else:
        key = "trained_same_free" if _alike(first, after) else "trained_differs"
    yield Sentence(key, words, {"first": first, "after": after})


def start_costs(first: Quantity, after: Quantity, warm: Quantity) -> bool:
    """Whether being the first call is what costs: with trained weights it costs, too, and about as much.

    Args:
        first: time of the first call of a process before training.
        after: time of the first call of a process with trained weights.
        warm: time of a later call, above 0.
    """
    return after.value >= COSTLY * warm.value and _alike(first, after)


def _alike(first: Quantity, after: Quantity) -> bool:
    return _direction(after.value, first.value, TOGETHER) == "same"


def _spent_on(sheet: Sheet, words: Mapping[str, Word]) -> Sentence:
    """Name the operation that the extra time went to, over all its modules."""
    names = {str(name) for name in sheet.values("operation")}
    costs = {name: quantity for name in names if (quantity := sheet.total("extra_ns", operation=name))}
    most = max(costs, key=lambda name: (costs[name].value, name), default="")
    extra = sheet.total("extra_ns")  # of all self times: medians of several later calls do not add up to a later call's
    if not most or not extra or extra.value <= 0:
        return Sentence("spent_unknown", words)
    numbers = {"extra": extra, "cost": costs[most]}  # no share: where other operations take less it would be above 100 %
    if most == OUTSIDE:
        return Sentence("spent_outside", words, numbers)
    key = "spent_on" if costs[most].value >= SPENT * extra.value else "spent_widely"
    return Sentence(key, {**words, "operation": Name(most)}, numbers)


# ---- Profiler --------------------------------------------------------------------------------------------------------


def profiler(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Say what the profiler itself added."""
    sizes = dict.fromkeys((findings.settings.batch_sizes[0], findings.settings.batch_sizes[-1]))
    for device, size in itertools.product(findings.settings.devices, sizes):
        where = {"phase": "step", "device": device, "view": "host", "batch_size": size}
        profiled, plain, calls, added = (
            sheets.profiler.total(column, **where)
            for column in ("profiled_ns", "untraced_ns", "operation_calls", "added_per_call_ns")
        )
        part = share(sheets.profiler.total("added_to_calls_ns", **where), sheets.profiler.total("added_ns", **where))
        words: dict[str, Word] = {"place": main_place(findings, device), "size": size}
        times = ratio(profiled, plain)
        if not (profiled and plain and times):
            yield Sentence("profiler_missing", words)
            continue
        numbers = {"profiled": profiled, "plain": plain, "times": times}
        change = _direction(times.value, 1, SAME)
        if change == "rises" and calls and added and part:
            numbers |= {"calls": calls, "added": added}
            if part.value > 1:
                yield Sentence("profiler_adds_within", words, numbers)
            else:
                key = "profiler_adds" if part.value >= MOST else "profiler_adds_more"
                yield Sentence(key, words, {**numbers, "part": part})
        else:
            key = {"rises": "profiler_adds_uncounted", "same": "profiler_same", "falls": "profiler_quicker"}[change]
            yield Sentence(key, words, numbers)


# ---- Training --------------------------------------------------------------------------------------------------------


def training(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Say what accuracy the batch sizes reached in the same number of epochs."""
    for device in findings.settings.devices:
        runs = [run for run in findings.trainings if run.device == device and run.epochs]
        reached = {
            run.batch_size: quantity
            for run in sorted(runs, key=lambda run: run.batch_size)
            if (
                quantity := sheets.training.total(
                    "test_accuracy", device=device, batch_size=run.batch_size, epoch=run.epochs[-1].epoch
                )
            )
        }
        place = main_place(findings, device)
        if not reached:
            yield Sentence("training_missing", {"place": place})
            continue
        best, worst = (pick(reached, key=lambda size: reached[size].value) for pick in (max, min))
        words: dict[str, Word] = {"place": place, "best": best, "worst": worst, "epochs": findings.settings.epochs}
        if len(reached) == 1:
            yield Sentence("trained_one", words, {"accuracy": reached[best]})
        elif math.isclose(reached[best].value, reached[worst].value):
            yield Sentence("trained_alike", words, {"accuracy": reached[best]})
        else:
            key = _course([quantity.value for quantity in reached.values()])
            yield Sentence(key, words, {"best_accuracy": reached[best], "worst_accuracy": reached[worst]})


def _course(values: Sequence[float]) -> str:
    """Return the key for accuracies, smallest batch size first, that are not all the same: a cause needs one direction."""
    steps = list(itertools.pairwise(values))
    if all(after <= before for before, after in steps):
        return "trained_falls"
    return "trained_rises" if all(after >= before for before, after in steps) else "trained_to"


def explain(findings: Findings, sheets: Sheets) -> dict[str, tuple[Sentence, ...]]:
    """Return the sentences of every section."""
    parts: dict[str, Iterable[Sentence]] = {
        "training": training(findings, sheets),
        "operations": operations(findings, sheets),
        "batches": batches(findings, sheets),
        "devices": devices(findings, sheets),
        "first_calls": first_calls(findings, sheets),
        "profiler": profiler(findings, sheets),
    }
    return {section: tuple(sentences) for section, sentences in parts.items()}
