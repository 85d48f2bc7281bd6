"""Choose the sentences that explain the findings.

The numbers decide which sentence applies, wording/ has the words.

A sentence states what was measured. It names a cause only where a number that it cites supports it.
Where a number is missing, the sentence tells what cannot be determined. Reads and writes no files.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mnistbench.core import units
from mnistbench.core.operation import NOT_OPERATIONS
from mnistbench.course.lab.lab_file import (
    NOISY_QUEUE,
    TRAINED,
    UNTRAINED,
    DevicePlace,
    Findings,
    WarmTime,
)
from mnistbench.course.lab.sheets import Cell, CitedNumber, Sheet, Sheets, Word, rate, ratio, share
from mnistbench.showing.text import Code

#: A time is about as long as another, and a ratio about the same, within this factor.
ALIKE_WITHIN = 1.10
#: Two ratios match if they differ by at most this factor.
MATCH_WITHIN = 1.15
#: Numbers of calls that differ by less than this factor are the same.
SAME_CALLS_WITHIN = 1.05
#: A rate of at least this share of a measured ceiling is near it.
NEAR_CEILING = 0.5
#: A first iteration that takes less than this many times a warm one counts as free of extra time.
SLOW_FIRST_CALL = 1.5
#: An operation with at least this share of the time dominates.
DOMINATES = 0.5
#: An accelerator is idle if it runs kernels for less than this share of a step.
IDLE_BELOW = 0.5
#: The profiler's cost of all calls explains the difference if it has at least this share of it.
ATTRIBUTED = 0.5
#: The extra time of a first iteration is attributed to one operation that has at least this share
#: of it.
EXPLAINS = 0.3

#: Fill in a wording: names, words to translate, places and numbers that are no measurements.
Words = dict[str, object]


@dataclass(frozen=True)
class Sentence:
    """The key of a wording, and the words and numbers that can fill it in."""

    key: str
    words: Mapping[str, object] = field(default_factory=dict)
    numbers: Mapping[str, CitedNumber] = field(default_factory=dict)

    @property
    def is_of_times(self) -> bool:
        """Whether a number is computed from times, so that noise could make it."""
        cells = [cells for number in self.numbers.values() for cells in (number.over, number.under)]
        return any(part and part.column.endswith("_ns") for part in cells)


def main_place(findings: Findings, device: str) -> DevicePlace:
    """Return the place at which the tables of a device were measured."""
    return DevicePlace(device, findings.environment.threads)


def convolutions(sheet: Sheet) -> list[str]:
    """Return the operations of a table that belong to convolutions: a convolution calls several."""
    return sorted({str(name) for name in sheet.values("operation") if "conv" in str(name).lower()})


def convolution_and_addmm(sheet: Sheet, column: str = "self_ns") -> dict[str, CitedNumber | None]:
    """Return the sums of a column over convolution and over addmm, in this order.

    The column is that of the self times by default.
    """
    named = {"convolution": convolutions(sheet), "addmm": ["aten::addmm"]}
    return {noun: sheet.total(column, operation=names) for noun, names in named.items()}


def best_view(sheets: Sheets, phase: str, device: str, batch_size: int) -> Sheet | None:
    """Return the operation table with times of the device's own clock; None if there is none.

    The host of an accelerator only launches the kernels, so its times are not those of the
    operations.
    """
    return sheets.operations.get(
        (phase, device, "host" if device == "cpu" else "device", batch_size)
    )


def _complete(**numbers: CitedNumber | None) -> dict[str, CitedNumber]:
    """Return the numbers; none of them if one is missing."""
    present = {name: number for name, number in numbers.items() if number}
    return present if len(present) == len(numbers) else {}


def _say(
    key_of: Callable[[Mapping[str, float]], str],
    words: Words,
    *,
    missing: str,
    **numbers: CitedNumber | None,
) -> Sentence:
    """Return a sentence with these numbers, whose values choose its key.

    If one of the numbers is missing, the sentence is ``missing`` and has none.
    """
    present = _complete(**numbers)
    if not present:
        return Sentence(missing, words)
    return Sentence(
        key_of({name: number.value for name, number in present.items()}), words, present
    )


def _direction(now: float, before: float, factor: float = ALIKE_WITHIN) -> str:
    if now > before * factor:
        return "rises"
    return "falls" if now * factor < before else "same"


def _match(one: float, other: float) -> bool:
    return one > 0 and other > 0 and max(one, other) / min(one, other) <= MATCH_WITHIN


def _ends(sizes: Sequence[int]) -> Iterable[int]:
    """Return the smallest and the largest of ascending batch sizes; one if they are the same."""
    return dict.fromkeys((sizes[0], sizes[-1]))


def operations(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Name the operation with the most time, and compare convolution with addmm."""
    for device in findings.settings.devices:
        place = main_place(findings, device)
        views = {
            size: best_view(sheets, "forward", device, size)
            for size in findings.settings.batch_sizes
        }
        tables = {size: sheet for size, sheet in views.items() if sheet}
        if not tables:
            yield Sentence("operations_missing", {"place": place})
            continue
        largest = max(tables)
        for phase in ("forward", "step"):
            if sheet := best_view(sheets, phase, device, largest):
                top = top_operation(sheet)
                whole = sheet.total("self_ns")
                words: Words = {
                    "place": place,
                    "phase": Word(phase),
                    "size": largest,
                    "operation": Code(top),
                }
                yield _say(
                    lambda values: "dominates" if values["share"] >= DOMINATES else "leads",
                    words,
                    missing="operations_missing",
                    share=share(sheet.total("self_ns", operation=top), whole),
                    whole=whole,
                )
        yield from _convolution_and_addmm(sheets, tables[largest], place, largest)
        if len(tables) > 1:
            yield from _ratio_over_batches(tables, place)


def top_operation(sheet: Sheet) -> str:
    """Return the operation with the most self time, over all its modules.

    Empty if there is none.
    """
    return next(iter(ranked_operations(sheet)), "")


def ranked_operations(sheet: Sheet) -> list[str]:
    """Return the operations by their self times over all modules, largest first."""
    times = _sums_by_operation(sheet, "self_ns")
    names = times.keys() - NOT_OPERATIONS
    return sorted(names, key=lambda name: (times[name], name), reverse=True)


def _sums_by_operation(sheet: Sheet, column: str) -> dict[str, float]:
    """Return the sums of a column, in one pass: a table may be made up, with any number of rows."""
    sums: dict[str, float] = {}
    for name, number in zip(sheet.values("operation"), sheet.values(column), strict=True):
        if isinstance(number, int | float):
            sums[str(name)] = sums.get(str(name), 0) + number
    return sums


def _convolution_and_addmm(
    sheets: Sheets, sheet: Sheet, place: DevicePlace, size: int
) -> Iterator[Sentence]:
    times = convolution_and_addmm(sheet)
    where: Words = {"place": place, "size": size}
    if missing := [noun for noun, time in times.items() if not (time and time.value)]:
        yield Sentence("not_in_table", {**where, "what": Word(missing[0])})
        return
    order = sorted(times, key=lambda noun: -(time.value if (time := times[noun]) else 0.0))
    words: Words = {**where, "larger": Word(order[0]), "smaller": Word(order[1])}
    columns = {"time": "self_ns", "flops": "flops", "bytes": "moved_bytes"}
    sums = {name: convolution_and_addmm(sheet, column) for name, column in columns.items()}
    numbers = _complete(
        **{
            name: ratio(sums_of_two[order[0]], sums_of_two[order[1]])
            for name, sums_of_two in sums.items()
        }
    )
    if not numbers:
        time = _complete(time=ratio(times[order[0]], times[order[1]]))
        yield Sentence("ratio_uncounted", words, time)
        return
    yield Sentence(_ratio_key(*(number.value for number in numbers.values())), words, numbers)
    for noun in order:
        yield _say(
            _nearest_ceiling,
            {**where, "what": Word(noun)},
            missing="ceiling_missing",
            flops=rate(sums["flops"][noun], times[noun]),
            bytes=rate(sums["bytes"][noun], times[noun]),
            flops_ceiling=sheets.ceilings.total("flops_per_s", device=place.device),
            bytes_ceiling=sheets.ceilings.total("bytes_per_s", device=place.device),
        )


def _nearest_ceiling(values: Mapping[str, float]) -> str:
    if values["flops"] >= NEAR_CEILING * values["flops_ceiling"]:
        return "ceiling_flops"
    if values["bytes"] >= NEAR_CEILING * values["bytes_ceiling"]:
        return "ceiling_bytes"
    return "ceiling_neither"


def _ratio_key(time: float, flops: float, moved: float) -> str:
    """Return the sentence that tells which ratio the ratio of times matches."""
    matches_flops = _match(time, flops)
    matches_bytes = _match(time, moved)
    if matches_flops or matches_bytes:
        return (
            "ratio_follows_both"
            if matches_flops and matches_bytes
            else "ratio_follows_flops"
            if matches_flops
            else "ratio_follows_bytes"
        )
    if time > max(flops, moved):
        return "ratio_above_both"
    return "ratio_below_both" if time < min(flops, moved) else "ratio_between"


#: Direction of the ratio of times from the smallest to the largest batch size -> its sentence.
_RATIO_OVER_BATCHES = {
    "rises": "ratio_over_batches_rises",
    "same": "ratio_over_batches_same",
    "falls": "ratio_over_batches_falls",
}


def _ratio_over_batches(tables: Mapping[int, Sheet], place: DevicePlace) -> Iterator[Sentence]:
    small = min(tables)
    large = max(tables)
    before = convolution_and_addmm(tables[small])
    after = convolution_and_addmm(tables[large])
    ends = _complete(first=ratio(*before.values()), last=ratio(*after.values()))
    growth = _growth(before, after)
    if not (ends and growth):
        return
    change = _direction(ends["last"].value, ends["first"].value)
    words: Words = {"place": place, "small": small, "large": large}
    numbers = ends if change == "same" else {**ends, **growth}
    yield Sentence(_RATIO_OVER_BATCHES[change], words, numbers)
    # Why addmm's time may grow less than convolution's.
    moved = _growth(
        *(convolution_and_addmm(tables[size], "moved_bytes") for size in (small, large))
    )
    if change != "rises" or not moved or not moved["addmm"].value:
        return
    times = {f"time_{noun}": number for noun, number in growth.items()}
    bytes_ratio = moved["convolution"].value / moved["addmm"].value
    if _match(ends["last"].value / ends["first"].value, bytes_ratio):
        yield Sentence("bytes_over_batches_match", words, {**moved, **times})
    elif _direction(bytes_ratio, 1) == "rises":
        yield Sentence("bytes_over_batches", words, {**moved, **times})


def _growth(
    before: Mapping[str, CitedNumber | None], after: Mapping[str, CitedNumber | None]
) -> dict[str, CitedNumber]:
    return _complete(**{noun: ratio(after[noun], before[noun]) for noun in before})


#: Direction of the time of an epoch from the smallest to the largest batch size -> its sentence.
_EPOCHS = {"rises": "epoch_rises", "same": "epoch_same", "falls": "epoch_falls"}


def batches(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Compare times per batch, per sample and per pass over the batch sizes."""
    if len(findings.settings.batch_sizes) < 2:
        yield Sentence("one_batch_size", {"size": findings.settings.batch_sizes[0]})
        return
    for device in findings.settings.devices:
        place = main_place(findings, device)
        for phase in ("step", "forward"):
            yield from _over_batches(sheets.iterations, place, phase)
        yield from _calls_over_batches(findings, sheets, place)
        for phase in ("train", "eval"):
            words: Words = {"place": place, "phase": Word(phase)}
            epochs = _by_size(sheets.epochs, "epoch_ns", place, phase)
            if len(epochs) < 2:
                yield Sentence("epochs_missing", words)
                continue
            small = min(epochs)
            large = max(epochs)
            change = _direction(epochs[large].value, epochs[small].value)
            numbers = {"first": epochs[small], "last": epochs[large]}
            yield Sentence(_EPOCHS[change], words | {"small": small, "large": large}, numbers)
            yield from _extrapolated(sheets, place, phase, (small, large))


def _extrapolated(
    sheets: Sheets, place: DevicePlace, phase: str, sizes: Sequence[int]
) -> Iterator[Sentence]:
    """Tell of which times a part of a pass was timed."""
    shares = _by_size(sheets.epochs, "timed_share", place, phase)
    timed = _by_size(sheets.epochs, "timed_median_ns", place, phase)
    for size in sizes:
        if shares[size].value < 1:
            words: Words = {"place": place, "phase": Word(phase), "size": size}
            numbers = {"part": shares[size], "timed": timed[size]}
            yield Sentence("epoch_extrapolated", words, numbers)


def disturbed(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Tell what shows that other programs ran, if something does, and what follows."""
    worst = findings.disturbed
    if not worst:
        return
    words: Words = {"place": worst.place, "phase": Word(worst.phase), "size": worst.batch_size}
    queued, iqr, median = (
        _by_size(sheets.iterations, column, worst.place, worst.phase).get(worst.batch_size)
        for column in ("other_programs", "iqr_ns", "median_ns")
    )
    by_queue = worst.queued_share >= NOISY_QUEUE
    numbers = _complete(part=queued) if by_queue else _complete(iqr=iqr, median=median)
    yield Sentence("disturbed_queue" if by_queue else "disturbed_spread", words, numbers)
    yield Sentence("disturbed")


def disturbance(worst: WarmTime) -> Sentence:
    """Return what shows that the machine of a lab was disturbed, and what to do, as a flaw."""
    words: Words = {
        "phase": Word(worst.phase),
        "size": str(worst.batch_size),
        "place": worst.place,
    }
    if worst.queued_share >= NOISY_QUEUE:
        return Sentence("disturbed_queue", {**words, "part": units.percent(worst.queued_share)})
    times = {"median": units.duration(worst.median_ns), "iqr": units.duration(worst.iqr_ns or 0)}
    return Sentence("disturbed_spread", {**words, **times})


def _by_size(sheet: Sheet, column: str, place: DevicePlace, phase: str) -> dict[int, CitedNumber]:
    """Return a column's numbers at a place by batch size, ascending."""
    where: dict[str, Cell] = {"device": place.device, "threads": place.threads, "phase": phase}
    sizes = sorted(int(str(size)) for size in sheet.values("batch_size", **where))
    return {
        size: number for size in sizes if (number := sheet.total(column, **where, batch_size=size))
    }


#: Directions of the time per batch and of the time per sample from the smallest to the largest
#: batch size -> their sentence. The time per sample falls where the time per batch grows less than
#: the batch.
_BATCHES = {
    ("rises", "rises"): "batch_rises_sample_rises",
    ("rises", "same"): "batch_rises_sample_same",
    ("rises", "falls"): "batch_rises_sample_falls",
    ("same", "same"): "batch_same_sample_same",
    ("same", "falls"): "batch_same_sample_falls",
    ("falls", "falls"): "batch_falls_sample_falls",
}


def _over_batches(sheet: Sheet, place: DevicePlace, phase: str) -> Iterator[Sentence]:
    words: Words = {"place": place, "phase": Word(phase)}
    batch, sample = (_by_size(sheet, column, place, phase) for column in ("median_ns", "sample_ns"))
    small = min(sample, default=0)
    large = max(sample, default=0)
    ends = {"first": sample.get(small), "last": sample.get(large)}
    numbers = _complete(batch_ratio=ratio(batch.get(large), batch.get(small)), **ends)
    if small == large or not numbers or not numbers["last"].value:
        yield Sentence("batches_missing", words)
        return
    batch_change = _direction(numbers["batch_ratio"].value, 1)
    sample_change = _direction(sample[large].value / sample[small].value, 1)
    yield Sentence(
        _BATCHES[batch_change, sample_change], words | {"small": small, "large": large}, numbers
    )
    yield _where_it_stops(sample, words)


def _where_it_stops(sample: Mapping[int, CitedNumber], words: Words) -> Sentence:
    """Tell from which batch size on the time per sample hardly improves."""
    best = min(sample, key=lambda size: (sample[size].value, size))
    before, last = list(sample)[-2:]
    if sample[last].value > sample[best].value * ALIKE_WITHIN:
        return Sentence(
            "best_at",
            words | {"best": best, "large": last},
            _complete(worse=ratio(sample[last], sample[best])),
        )
    enough = min(size for size in sample if sample[size].value <= sample[best].value * ALIKE_WITHIN)
    if enough == last:
        gain = _complete(gain=ratio(sample[before], sample[last]))
        return Sentence("still_improving", words | {"before": before, "large": last}, gain)
    gain = _complete(gain=ratio(sample[enough], sample[last]))
    return Sentence("stops_improving", words | {"enough": enough, "large": last}, gain)


def _calls_over_batches(
    findings: Findings, sheets: Sheets, place: DevicePlace
) -> Iterator[Sentence]:
    """Compare the number of operation calls.

    A fixed time per call is shared by the samples of a batch.
    """
    small = findings.settings.batch_sizes[0]
    large = findings.settings.batch_sizes[-1]
    where: dict[str, Cell] = {"phase": "step", "device": place.device, "view": "host"}
    numbers = _complete(
        first=sheets.profiler.total("operation_calls", **where, batch_size=small),
        last=sheets.profiler.total("operation_calls", **where, batch_size=large),
    )
    if numbers:
        change = _direction(numbers["last"].value, numbers["first"].value, SAME_CALLS_WITHIN)
        yield Sentence(
            "calls_same" if change == "same" else "calls_differ",
            {"place": place, "small": small, "large": large},
            numbers,
        )


def devices(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Compare the CPU with the accelerator; without one, compare one thread with all threads."""
    accelerator = findings.settings.accelerator
    sizes = findings.settings.batch_sizes
    if not accelerator:
        yield Sentence("no_accelerator")
        yield from _threads(findings, sheets)
        return
    if "cpu" not in findings.settings.devices:
        yield Sentence("no_cpu", {"device": Code(accelerator)})
        return
    cpu = main_place(findings, "cpu")
    place = main_place(findings, accelerator)
    for phase in ("train", "eval"):
        yield _speedup(sheets, cpu, place, phase, sizes)
    for size in _ends(sizes):  # the time in which the accelerator ran kernels, and that of a step
        words: Words = {"place": place, "size": size}
        where: dict[str, Cell] = {
            "phase": "step",
            "device": accelerator,
            "view": "device",
            "batch_size": size,
        }
        yield _say(
            lambda values: "idle" if values["busy"] < IDLE_BELOW * values["step"] else "busy",
            words,
            missing="idle_missing",
            busy=sheets.profiler.total("busy_ns", **where),
            step=sheets.profiler.total("untraced_ns", **where),
        )
    yield from _where_time_moves(sheets, cpu, place, sizes[-1])


def _speedup(
    sheets: Sheets, cpu: DevicePlace, accelerator: DevicePlace, phase: str, sizes: Sequence[int]
) -> Sentence:
    cpu_times, accelerator_times = (
        _by_size(sheets.epochs, "epoch_ns", place, phase) for place in (cpu, accelerator)
    )
    ratios = {size: ratio(cpu_times.get(size), accelerator_times.get(size)) for size in sizes}
    known = {size: number for size, number in ratios.items() if number}
    words: Words = {"phase": Word(phase), "place": accelerator, "cpu": cpu}
    if not known:
        return Sentence("speedup_missing", words)
    small = min(known)
    large = max(known)
    ahead = sum(number.value >= ALIKE_WITHIN for number in known.values())
    if len(known) == 1:
        return Sentence("speedup_one", words | {"size": small}, {"first": known[small]})
    key = "speedup_all" if ahead == len(known) else "speedup_some" if ahead else "speedup_none"
    return Sentence(
        key, words | {"small": small, "large": large}, {"first": known[small], "last": known[large]}
    )


def _where_time_moves(
    sheets: Sheets, cpu: DevicePlace, accelerator: DevicePlace, size: int
) -> Iterator[Sentence]:
    first, second = (best_view(sheets, "step", place.device, size) for place in (cpu, accelerator))
    if not (first and second):
        return
    tops = [top_operation(sheet) for sheet in (first, second)]
    numbers = _complete(
        first_share=share(first.total("self_ns", operation=tops[0]), first.total("self_ns")),
        second_share=share(second.total("self_ns", operation=tops[1]), second.total("self_ns")),
    )
    if numbers:
        words: Words = {
            "cpu": cpu,
            "place": accelerator,
            "size": size,
            "first": Code(tops[0]),
            "second": Code(tops[1]),
        }
        yield Sentence("same_top" if tops[0] == tops[1] else "other_top", words, numbers)


def _threads(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    many = findings.environment.threads
    if many < 2:
        yield Sentence("one_thread")
        return
    one_thread, all_threads = (
        _by_size(sheets.iterations, "median_ns", DevicePlace("cpu", threads), "step")
        for threads in (1, many)
    )
    for size in _ends(findings.settings.batch_sizes):
        words: Words = {"size": size, "threads": many}
        with_one = one_thread.get(size)
        all_ = all_threads.get(size)
        if not (with_one and all_):
            yield Sentence("threads_missing", words)
            continue
        faster = _direction(with_one.value, all_.value)
        key = {"rises": "threads_help", "same": "threads_same", "falls": "threads_hurt"}[faster]
        gain = {"threads_help": ratio(with_one, all_), "threads_hurt": ratio(all_, with_one)}.get(
            key
        )
        yield Sentence(
            key, words, {"one": with_one, "all": all_} | ({"gain": gain} if gain else {})
        )


def first_iterations(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Compare the first iteration of a process with later ones.

    Untrained weights are compared with trained ones, too.
    """
    untrained = [
        (call.device, call.phase, call.batch_size)
        for call in findings.first_iterations
        if call.weights == UNTRAINED
    ]
    if not untrained:
        yield Sentence("first_missing")
    for device, phase in dict.fromkeys((device, phase) for device, phase, _ in untrained):
        size = min(size for d, p, size in untrained if (d, p) == (device, phase))
        yield from _first_iteration(sheets, main_place(findings, device), phase, size)


def _first_iteration(
    sheets: Sheets, place: DevicePlace, phase: str, size: int
) -> Iterator[Sentence]:
    where: dict[str, Cell] = {"device": place.device, "phase": phase, "batch_size": size}
    words: Words = {"place": place, "phase": Word(phase), "size": size}
    first, warm = (
        sheets.first_iterations.total(column, **where, weights=UNTRAINED)
        for column in ("first_ns", "warm_ns")
    )
    times = ratio(first, warm)
    if not (first and warm and times):
        yield Sentence("first_unknown", words)
        return
    costly = is_slow(first, warm)
    yield Sentence(
        "first_same" if _direction(first.value, warm.value) == "same" else "first_times",
        words,
        {"first": first, "warm": warm, "times": times},
    )
    if costly:
        yield _spent_on(sheets.first_operations[phase, place.device, size, UNTRAINED], words)
    after = sheets.first_iterations.total("first_ns", **where, weights=TRAINED)
    if not after:
        yield Sentence("trained_missing", words)
        return
    same = _direction(after.value, first.value) == "same"
    if costly and is_slow(after, warm):
        key = "trained_same" if same else "trained_slow"
        yield Sentence(key, words, {"first": first, "after": after, "warm": warm})
    else:
        key = "trained_same_free" if same else "trained_differs"
        yield Sentence(key, words, {"first": first, "after": after})


def is_slow(first: CitedNumber, warm: CitedNumber) -> bool:
    """Return whether a first iteration takes much longer than a warm one."""
    return first.value >= SLOW_FIRST_CALL * warm.value


def _spent_on(sheet: Sheet, words: Words) -> Sentence:
    """Name the operation with the most extra time, over all its modules."""
    costs = _sums_by_operation(sheet, "extra_ns")
    most = max(costs, key=lambda name: (costs[name], name), default="")
    # Of self times: the median of an iteration is not the sum of its operations' medians.
    extra = sheet.total("extra_ns")
    if not most or not extra or extra.value <= 0:
        return Sentence("spent_unknown", words, _complete(extra=extra))
    # No share: it exceeds 100 % if other operations take less time.
    numbers = _complete(extra=extra, cost=sheet.total("extra_ns", operation=most))
    if most in NOT_OPERATIONS:
        return Sentence("spent_outside", words, numbers)
    key = "spent_on" if costs[most] >= EXPLAINS * extra.value else "spent_widely"
    return Sentence(key, {**words, "operation": Code(most)}, numbers)


def profiler(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Compare profiled with untraced training steps."""
    for device, size in itertools.product(
        findings.settings.devices, _ends(findings.settings.batch_sizes)
    ):
        where: dict[str, Cell] = {
            "phase": "step",
            "device": device,
            "view": "host",
            "batch_size": size,
        }
        yield _profiler_added(
            sheets.profiler, where, {"place": main_place(findings, device), "size": size}
        )


def _profiler_added(sheet: Sheet, where: Mapping[str, Cell], words: Words) -> Sentence:
    profiled, plain = (sheet.total(column, **where) for column in ("profiled_ns", "untraced_ns"))
    numbers = _complete(profiled=profiled, plain=plain, times=ratio(profiled, plain))
    if not numbers:
        return Sentence("profiler_missing", words)
    change = _direction(numbers["times"].value, 1)
    if change != "rises":
        return Sentence("profiler_same" if change == "same" else "profiler_quicker", words, numbers)
    call_numbers = _complete(
        calls=sheet.total("operation_calls", **where),
        added=sheet.total("added_per_call_ns", **where),
        part=share(sheet.total("added_to_calls_ns", **where), sheet.total("added_ns", **where)),
    )
    if not call_numbers:
        return Sentence("profiler_adds_uncounted", words, numbers)
    part = call_numbers["part"].value
    key = (
        "profiler_adds_within"
        if part > 1
        else "profiler_adds"
        if part >= ATTRIBUTED
        else "profiler_adds_more"
    )
    return Sentence(key, words, numbers | call_numbers)


def training(findings: Findings, sheets: Sheets) -> Iterator[Sentence]:
    """Compare the accuracy that the batch sizes reached in the same number of epochs."""
    for device in findings.settings.devices:
        last = {
            run.batch_size: run.epochs[-1].number
            for run in findings.trainings
            if run.device == device and run.epochs
        }

        def total(
            column: str, size: int, device: str = device, last: Mapping[int, int] = last
        ) -> CitedNumber | None:
            return sheets.training.total(column, device=device, batch_size=size, epoch=last[size])

        reached = {
            size: quantity for size in sorted(last) if (quantity := total("test_accuracy", size))
        }
        place = main_place(findings, device)
        if not reached:
            yield Sentence("training_missing", {"place": place})
            continue
        best, worst = (pick(reached, key=lambda size: reached[size].value) for pick in (max, min))
        words: Words = {
            "place": place,
            "best": best,
            "worst": worst,
            "epochs": findings.settings.epochs,
        }
        if math.isclose(reached[best].value, reached[worst].value):
            yield Sentence(
                "trained_one" if len(reached) == 1 else "trained_alike",
                words,
                {"accuracy": reached[best]},
            )
            continue
        # Smallest batch size first.
        steps = list(itertools.pairwise(quantity.value for quantity in reached.values()))
        falls = all(after < before for before, after in steps)
        rises = all(after > before for before, after in steps)
        updates = _complete(
            best_updates=total("updates", best), worst_updates=total("updates", worst)
        )
        if updates["best_updates"].value == updates["worst_updates"].value:
            falls = rises = False  # these sentences name the number of updates
        key = "trained_falls" if falls else "trained_rises" if rises else "trained_to"
        yield Sentence(
            key,
            words,
            {"best_accuracy": reached[best], "worst_accuracy": reached[worst], **updates},
        )


def explain(findings: Findings, sheets: Sheets) -> dict[str, tuple[Sentence, ...]]:
    """Return the sentences of every section.

    Those that noise could make are left out if the machine was disturbed.
    """
    sections = (training, operations, batches, devices, first_iterations, profiler)
    return {
        section.__name__: tuple(
            sentence
            for sentence in section(findings, sheets)
            if not (findings.disturbed and sentence.is_of_times)
        )
        for section in sections
    }
