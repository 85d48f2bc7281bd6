"""Check claims that are common in reports on this lab against the findings of a machine.

Each claim is checked in two ways: as such reports measure (one image, first iteration of a
process), and with warm iterations at each batch size. The verdict follows from the second way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from mnistbench.course.lab.lab_file import TRAINED, UNTRAINED, Findings
from mnistbench.course.lab.sentences import (
    ALIKE_WITHIN,
    DOMINATES,
    SLOW_FIRST_CALL,
    Sentence,
    Words,
    best_view,
    convolution_and_addmm,
    is_slow,
    main_place,
)
from mnistbench.course.lab.sheets import Cell, CitedNumber, Sheet, Sheets, Word, ratio, share

#: Verdict: the claim holds.
HOLDS = "holds"
#: Verdict: the claim holds in part.
PARTLY = "partly"
#: Verdict: the claim fails.
FAILS = "fails"
#: Verdict: the lab cannot tell.
UNKNOWN = "unknown"

#: Dropout, pooling and activations are negligible below this share of a forward pass in training.
NEGLIGIBLE = 0.05
#: Parts of the class names of these layers.
_SMALL_KINDS = ("Dropout", "Pool", "ReLU", "GELU", "Sigmoid", "Tanh", "Softmax")

#: Bounds of the reports' factor on a GPU; a figure that rounds to a bound is within them.
GPU_RATIO = (7, 8)
#: Bounds of the reports' factor on a CPU.
CPU_RATIO = (3, 4)
#: Bounds of the reports' speed-up.
SPEEDUP = (15, 20)

#: Batch size of the reports' measurements.
ONE = 1

#: Claim -> verdict -> key of its reason; "bounds" are the claims of a factor between two numbers.
_REASONS = {
    "bounds": {HOLDS: "bounds_holds", PARTLY: "bounds_partly", FAILS: "bounds_fails"},
    "convolution_most": {
        HOLDS: "convolution_most_holds",
        PARTLY: "convolution_most_partly",
        FAILS: "convolution_most_fails",
    },
    "negligible": {
        HOLDS: "negligible_holds",
        PARTLY: "negligible_partly",
        FAILS: "negligible_fails",
    },
    "batch_grows": {
        HOLDS: "batch_grows_holds",
        PARTLY: "batch_grows_partly",
        FAILS: "batch_grows_fails",
    },
    "sample_falls": {
        HOLDS: "sample_falls_holds",
        PARTLY: "sample_falls_partly",
        FAILS: "sample_falls_fails",
    },
}


#: Reasons that follow from no times.
_NOT_MEASURED = ("no_accelerator", "no_cpu", "not_measured")


@dataclass(frozen=True)
class Claim:
    """A claim and its verdict on this machine.

    Each figure is a sentence with the number ``number``.
    """

    key: str
    verdict: str  # HOLDS, PARTLY, FAILS or UNKNOWN
    reason: str  # key of its wording
    words: Words
    reports: tuple[Sentence, ...] = ()  # figures as the reports measure
    right: tuple[Sentence, ...] = ()  # warm, per batch size


def check(findings: Findings, sheets: Sheets) -> Iterator[Claim]:
    """Yield all claims, checked; all are about times, so a disturbed machine cannot tell."""
    for claim in _checked(findings, sheets):
        yield (
            replace(claim, verdict=UNKNOWN, reason="disturbed")
            if findings.disturbed and claim.reason not in _NOT_MEASURED
            else claim
        )


def _checked(findings: Findings, sheets: Sheets) -> Iterator[Claim]:
    devices = findings.settings.devices
    cpu = "cpu" if "cpu" in devices else ""
    yield from (_convolution_is_most(findings, sheets, device) for device in devices)
    yield _convolution_over_addmm(
        findings, sheets, "ratio_gpu", findings.settings.accelerator, GPU_RATIO
    )
    yield _convolution_over_addmm(findings, sheets, "ratio_cpu", cpu, CPU_RATIO)
    yield from (_negligible(findings, sheets, device) for device in devices)
    for device in devices:
        yield from _batch_and_sample(findings, sheets, device)
    for key, phase, one_call in (
        ("speedup_train", "train", "step"),
        ("speedup_test", "eval", "forward"),
    ):
        yield _speedup(findings, sheets, key, phase, one_call)
    yield from (_bug_of_the_cluster(findings, sheets, device) for device in devices)


def _figures(key: str, number: CitedNumber | None, **words: object) -> list[Sentence]:
    """Return a figure; none if the number is missing."""
    return [Sentence(key, words, {"number": number})] if number else []


def _decided(
    key: str,
    words: Words,
    reports: list[Sentence],
    right: list[Sentence],
    holds: Callable[[float], bool] | tuple[int, int],
) -> Claim:
    """Return the claim with one verdict over all batch sizes.

    Bounds hold for a figure that rounds to a number within them.
    """
    values = [figure.numbers["number"].value for figure in right]
    if isinstance(holds, tuple):
        reasons = _REASONS["bounds"]
        checked = [holds[0] - 0.5 <= value < holds[1] + 0.5 for value in values]
    else:
        reasons = _REASONS[key]
        checked = [holds(value) for value in values]
    verdict = (
        UNKNOWN if not checked else HOLDS if all(checked) else PARTLY if any(checked) else FAILS
    )
    reason = "not_measured" if verdict == UNKNOWN else reasons[verdict]
    return Claim(key, verdict, reason, words, tuple(reports), tuple(right))


def _by_tables(
    findings: Findings,
    sheets: Sheets,
    phase: str,
    device: str,
    number: Callable[[Sheet, str], CitedNumber | None],
    *,
    first_figure: str,
    batch_figure: str,
) -> tuple[list[Sentence], list[Sentence]]:
    """Return the numbers of the table that the reports use.

    One of the first forward pass on one image, and one per batch size; the last two arguments are
    the keys of their wordings.
    """
    first = sheets.first_operations.get(("forward", device, ONE, UNTRAINED))
    tables = {
        size: best_view(sheets, phase, device, size) for size in findings.settings.batch_sizes
    }
    right = [
        _figures(batch_figure, number(sheet, "self_ns"), size=size)
        for size, sheet in tables.items()
        if sheet
    ]
    reports = _figures(first_figure, number(first, "first_self_ns")) if first else []
    return reports, list(itertools.chain.from_iterable(right))


def _convolution_is_most(findings: Findings, sheets: Sheets, device: str) -> Claim:
    def part(sheet: Sheet, column: str) -> CitedNumber | None:
        return share(convolution_and_addmm(sheet, column)["convolution"], sheet.total(column))

    figures = _by_tables(
        findings, sheets, "forward", device, part, first_figure="share", batch_figure="share_batch"
    )
    words: Words = {"place": main_place(findings, device)}
    return _decided("convolution_most", words, *figures, lambda value: value >= DOMINATES)


def _convolution_over_addmm(
    findings: Findings, sheets: Sheets, key: str, device: str, expected: tuple[int, int]
) -> Claim:
    words: Words = {"low": expected[0], "high": expected[1]}
    if not device:
        return Claim(key, UNKNOWN, "no_accelerator" if key == "ratio_gpu" else "no_cpu", words)

    def times(sheet: Sheet, column: str) -> CitedNumber | None:
        return ratio(*convolution_and_addmm(sheet, column).values())

    figures = _by_tables(
        findings, sheets, "forward", device, times, first_figure="times", batch_figure="times_batch"
    )
    return _decided(key, words, *figures, expected)


def _negligible(findings: Findings, sheets: Sheets, device: str) -> Claim:
    """Check the share of the forward pass in training, because inference skips dropout."""
    modules = [
        layer.name for layer in findings.layers if any(kind in layer.kind for kind in _SMALL_KINDS)
    ]

    def part(sheet: Sheet, column: str) -> CitedNumber | None:
        forward_only: dict[str, Cell] = {"phase": "forward"} if column == "self_ns" else {}
        return share(
            sheet.total(column, **forward_only, module=modules), sheet.total(column, **forward_only)
        )

    figures = _by_tables(
        findings, sheets, "step", device, part, first_figure="share", batch_figure="share_batch"
    )
    words: Words = {"place": main_place(findings, device)}
    return _decided("negligible", words, *figures, lambda value: value < NEGLIGIBLE)


def _batch_and_sample(findings: Findings, sheets: Sheets, device: str) -> Iterator[Claim]:
    """Check that time per batch grows and time per sample falls with the batch size."""
    place = main_place(findings, device)
    first: dict[str, Cell] = {"device": device, "phase": "forward", "weights": UNTRAINED}
    warm: dict[str, Cell] = {"device": device, "threads": place.threads, "phase": "step"}
    for key, cold, column in (
        ("batch_grows", "first_ns", "median_ns"),
        ("sample_falls", "first_sample_ns", "sample_ns"),
    ):
        reports = []
        right = []
        for small, large in itertools.pairwise(findings.settings.batch_sizes):
            naive = ratio(
                *(
                    sheets.first_iterations.total(cold, **first, batch_size=size)
                    for size in (large, small)
                )
            )
            change = ratio(
                *(
                    sheets.iterations.total(column, **warm, batch_size=size)
                    for size in (large, small)
                )
            )
            reports += _figures("change", naive, small=small, large=large)
            right += _figures("change", change, small=small, large=large)
        grows = key == "batch_grows"
        holds = (
            (lambda value: value >= ALIKE_WITHIN)
            if grows
            else (lambda value: value <= 1 / ALIKE_WITHIN)
        )
        yield _decided(key, {"place": place}, reports, right, holds)


def _speedup(findings: Findings, sheets: Sheets, key: str, phase: str, one_call: str) -> Claim:
    words: Words = {"low": SPEEDUP[0], "high": SPEEDUP[1], "phase": Word(phase)}
    accelerator = findings.settings.accelerator
    if not accelerator or "cpu" not in findings.settings.devices:
        return Claim(key, UNKNOWN, "no_cpu" if accelerator else "no_accelerator", words)
    first: dict[str, Cell] = {"phase": one_call, "batch_size": ONE, "weights": UNTRAINED}
    naive = ratio(
        *(
            sheets.first_iterations.total("first_ns", **first, device=device)
            for device in ("cpu", accelerator)
        )
    )
    right = []
    for size in findings.settings.batch_sizes:
        warm: dict[str, Cell] = {
            "threads": findings.environment.threads,
            "phase": phase,
            "batch_size": size,
        }
        times = ratio(
            *(
                sheets.epochs.total("epoch_ns", **warm, device=device)
                for device in ("cpu", accelerator)
            )
        )
        right += _figures("times_batch", times, size=size)
    return _decided(key, words, _figures("times", naive), right, SPEEDUP)


def _bug_of_the_cluster(findings: Findings, sheets: Sheets, device: str) -> Claim:
    """Check whether the first iteration of a fresh process is slow with trained weights, too."""
    key = "bug_of_the_cluster"
    words: Words = {"place": main_place(findings, device)}
    where: dict[str, Cell] = {"device": device, "phase": "forward", "batch_size": ONE}
    first, warm = (
        sheets.first_iterations.total(column, **where, weights=UNTRAINED)
        for column in ("first_ns", "warm_ns")
    )
    after = sheets.first_iterations.total("first_ns", **where, weights=TRAINED)
    before = ratio(first, warm)
    reports = tuple(_figures("first_ns", first))
    if not (first and warm and before):
        return Claim(key, UNKNOWN, "not_measured", words, reports)
    right = (*_figures("warm_ns", warm), *_figures("first_over_warm", before))
    if not is_slow(first, warm):
        return Claim(key, FAILS, "bug_of_the_cluster_nothing", words, reports, right)
    if not after:
        return Claim(key, UNKNOWN, "bug_of_the_cluster_half", words, reports, right)
    right = (*right, *_figures("trained_first_ns", after))
    is_like_it = 1 / SLOW_FIRST_CALL < after.value / first.value < SLOW_FIRST_CALL
    if is_slow(after, warm) and is_like_it:
        return Claim(key, FAILS, "bug_of_the_cluster_process", words, reports, right)
    return Claim(key, UNKNOWN, "bug_of_the_cluster_unlike", words, reports, right)
