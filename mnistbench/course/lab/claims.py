"""Check claims that are common in reports on this lab against the findings of a machine.

Each claim is checked in two ways: as such reports measure (one image, first iteration of a process), and with warm
iterations at each batch size. The verdict follows from the second way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from mnistbench.course.lab.explain import (
    COSTLY,
    MOST,
    SAME,
    Name,
    Noun,
    Place,
    Word,
    best_view,
    convolutions,
    main_place,
    self_times,
    start_costs,
)
from mnistbench.course.lab.findings import TRAINED, UNTRAINED, Findings
from mnistbench.course.lab.sheets import Cell, Quantity, Sheet, Sheets, ratio, share

#: Verdicts.
HOLDS, PARTLY, FAILS, UNKNOWN = "holds", "partly", "fails", "unknown"

#: Dropout, pooling and activations are negligible below this share of a forward pass in training.
NEGLIGIBLE = 0.05
#: Parts of the class names of these layers.
_SMALL_KINDS = ("Dropout", "Pool", "ReLU", "GELU", "Sigmoid", "Tanh", "Softmax")

#: Bounds of the reports' factors; a figure that rounds to a bound is within them.
GPU_RATIO, CPU_RATIO, SPEEDUP = (7, 8), (3, 4), (15, 20)

#: Batch size of the reports' measurements.
ONE = 1


@dataclass(frozen=True)
class Figure:
    """A number and the conditions under which it was measured."""

    key: str  # of its wording, in the section ``figures_of_claims``
    number: Quantity
    words: Mapping[str, Word] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A claim and its verdict on this machine."""

    key: str
    verdict: str  # HOLDS, PARTLY, FAILS or UNKNOWN
    reason: str  # key of its wording
    reports: tuple[Figure, ...]  # as the reports measure
    right: tuple[Figure, ...]  # warm, per batch size
    words: Mapping[str, Word] = field(default_factory=dict)


def check(findings: Findings, sheets: Sheets) -> tuple[Claim, ...]:
    """Return all claims, checked."""
    return tuple(_claims(findings, sheets))


def _claims(findings: Findings, sheets: Sheets) -> Iterator[Claim]:
    cpu = "cpu" if "cpu" in findings.settings.devices else ""
    accelerator = findings.settings.accelerator
    for device in findings.settings.devices:
        yield _convolution_is_most(findings, sheets, device)
    yield _convolution_over_addmm(findings, sheets, "ratio_gpu", accelerator, GPU_RATIO)
    yield _convolution_over_addmm(findings, sheets, "ratio_cpu", cpu, CPU_RATIO)
    for device in findings.settings.devices:
        yield _negligible(findings, sheets, device)
    for device in findings.settings.devices:
        yield from _batch_and_sample(findings, sheets, device)
    for key, phase, one_call in (("speedup_train", "train", "step"), ("speedup_test", "eval", "forward")):
        yield _speedup(findings, sheets, key, phase, one_call)
    yield from _before_training(findings, sheets)


def _verdict(values: list[float], holds: Callable[[float], bool]) -> str:
    """Return one verdict over all batch sizes."""
    if not values:
        return UNKNOWN
    checked = sum(map(holds, values))
    return HOLDS if checked == len(values) else PARTLY if checked else FAILS


def _decided(
    key: str, reports: list[Figure], right: list[Figure], holds: Callable[[float], bool], words: Mapping[str, Word]
) -> Claim:
    verdict = _verdict([figure.number.value for figure in right], holds)
    reason = "not_measured" if verdict == UNKNOWN else f"{key}_{verdict}"
    return Claim(key, verdict, reason, tuple(reports), tuple(right), words)


def _one_image(sheets: Sheets, phase: str, device: str) -> Sheet | None:
    """Return the operation table that the reports use: the first iteration on one image."""
    return sheets.first_operations.get((phase, device, ONE, UNTRAINED))


# ---- Convolution -----------------------------------------------------------------------------------------------------


def _convolution_is_most(findings: Findings, sheets: Sheets, device: str) -> Claim:
    reports, right = [], []
    if table := _one_image(sheets, "forward", device):
        part = share(table.total("first_self_ns", operation=convolutions(table)), table.total("first_self_ns"))
        reports += [Figure("share_first", part)] if part else []
    for size in findings.settings.batch_sizes:
        if sheet := best_view(sheets, "forward", device, size):
            part = share(self_times(sheet)[0], sheet.total("self_ns"))
            right += [Figure("share_batch", part, {"size": size})] if part else []
    words: dict[str, Word] = {"place": main_place(findings, device)}
    return _decided("convolution_most", reports, right, lambda value: value >= MOST, words)


def _convolution_over_addmm(findings: Findings, sheets: Sheets, key: str, device: str, expected: tuple[int, int]) -> Claim:
    words: dict[str, Word] = {"low": expected[0], "high": expected[1]}
    if not device:
        return Claim(key, UNKNOWN, "no_accelerator" if key == "ratio_gpu" else "no_cpu", (), (), words)
    reports, right = [], []
    if table := _one_image(sheets, "forward", device):
        naive = ratio(
            table.total("first_self_ns", operation=convolutions(table)), table.total("first_self_ns", operation="aten::addmm")
        )
        reports += [Figure("times_first", naive)] if naive else []
    for size in findings.settings.batch_sizes:
        if sheet := best_view(sheets, "forward", device, size):
            times = ratio(*self_times(sheet))
            right += [Figure("times_batch", times, {"size": size})] if times else []
    return _decided(key, reports, right, lambda value: _within(value, expected), words)


def _within(value: float, expected: tuple[int, int]) -> bool:
    """Return whether a figure rounds to a number within the bounds."""
    return expected[0] - 0.5 <= value < expected[1] + 0.5


def _negligible(findings: Findings, sheets: Sheets, device: str) -> Claim:
    """Check the share of the forward pass in training, because inference skips dropout."""
    modules = [layer.name for layer in findings.model.layers if any(kind in layer.kind for kind in _SMALL_KINDS)]
    reports, right = [], []
    if table := _one_image(sheets, "forward", device):
        part = share(table.total("first_self_ns", module=modules), table.total("first_self_ns"))
        reports += [Figure("share_first", part)] if part else []
    for size in findings.settings.batch_sizes:
        if sheet := best_view(sheets, "step", device, size):
            part = share(sheet.total("self_ns", phase="forward", module=modules), sheet.total("self_ns", phase="forward"))
            right += [Figure("share_training", part, {"size": size})] if part else []
    words: dict[str, Word] = {"place": main_place(findings, device)}
    return _decided("negligible", reports, right, lambda value: value < NEGLIGIBLE, words)


# ---- Batch sizes -----------------------------------------------------------------------------------------------------


def _batch_and_sample(findings: Findings, sheets: Sheets, device: str) -> Iterator[Claim]:
    """Check that time per batch grows and time per sample falls from each batch size to the next."""
    place = main_place(findings, device)
    sizes = findings.settings.batch_sizes
    for key, column in (("batch_grows", "median_ns"), ("sample_falls", "sample_ns")):
        reports, right = [], []
        for small, large in itertools.pairwise(sizes):
            words: dict[str, Word] = {"small": small, "large": large}
            if naive := _first_call_ratio(sheets, device, small, large, per_sample=key == "sample_falls"):
                reports.append(Figure("change_first", naive, words))
            warm = [
                sheets.calls.total(column, device=place.device, threads=place.threads, phase="step", batch_size=size)
                for size in (large, small)
            ]
            if change := ratio(*warm):
                right.append(Figure("change_step", change, words))
        grows = key == "batch_grows"
        claim = _decided(
            key, reports, right, (lambda value: value >= SAME) if grows else (lambda value: value <= 1 / SAME), {"place": place}
        )
        yield claim


def _first_call_ratio(sheets: Sheets, device: str, small: int, large: int, *, per_sample: bool) -> Quantity | None:
    column = "first_sample_ns" if per_sample else "first_ns"
    over, under = (
        sheets.first_calls.total(column, device=device, phase="forward", batch_size=size, weights=UNTRAINED)
        for size in (large, small)
    )
    return ratio(over, under)


# ---- Devices ---------------------------------------------------------------------------------------------------------


def _speedup(findings: Findings, sheets: Sheets, key: str, phase: str, one_call: str) -> Claim:
    words: dict[str, Word] = {"low": SPEEDUP[0], "high": SPEEDUP[1], "phase": Noun(phase)}
    accelerator = findings.settings.accelerator
    if not accelerator:
        return Claim(key, UNKNOWN, "no_accelerator", (), (), words)
    if "cpu" not in findings.settings.devices:
        return Claim(key, UNKNOWN, "no_cpu", (), (), words)
    naive = ratio(
        *(
            sheets.first_calls.total("first_ns", device=device, phase=one_call, batch_size=ONE, weights=UNTRAINED)
            for device in ("cpu", accelerator)
        )
    )
    right = []
    for size in findings.settings.batch_sizes:
        times = ratio(
            *(
                sheets.epochs.total(
                    "epoch_ns", device=device, threads=findings.environment.threads, phase=phase, batch_size=size
                )
                for device in ("cpu", accelerator)
            )
        )
        right += [Figure("epochs_batch", times, {"size": size, "device": Name(accelerator)})] if times else []
    reports = [Figure("faster_first", naive, {"device": Name(accelerator)})] if naive else []
    return _decided(key, reports, right, lambda value: _within(value, SPEEDUP), words)


# ---- The profile before training -------------------------------------------------------------------------------------


def _before_training(findings: Findings, sheets: Sheets) -> Iterator[Claim]:
    """Check whether the first iteration of a fresh process is slow with trained weights, too."""
    for device in findings.settings.devices:
        yield _bug_of_the_cluster(sheets, main_place(findings, device))


def _bug_of_the_cluster(sheets: Sheets, place: Place) -> Claim:
    key, words = "bug_of_the_cluster", {"place": place}
    where: dict[str, Cell] = {"device": place.device, "phase": "forward", "batch_size": ONE}
    first, warm = (sheets.first_calls.total(column, **where, weights=UNTRAINED) for column in ("first_ns", "warm_ns"))
    after = sheets.first_calls.total("first_ns", **where, weights=TRAINED)
    before = ratio(first, warm)
    reports = (Figure("first_ns", first),) if first else ()
    if not (first and warm and before):
        return Claim(key, UNKNOWN, "not_measured", reports, (), words)
    right = [Figure("warm_ns", warm), Figure("first_over_warm", before)]
    if before.value < COSTLY:
        return Claim(key, FAILS, f"{key}_nothing", reports, tuple(right), words)
    if not after:
        return Claim(key, UNKNOWN, f"{key}_half", reports, tuple(right), words)
    right.append(Figure("trained_first_ns", after))
    if start_costs(first, after, warm):
        return Claim(key, FAILS, f"{key}_process", reports, tuple(right), words)
    return Claim(key, UNKNOWN, f"{key}_unlike", reports, tuple(right), words)
