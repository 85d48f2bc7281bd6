"""``mnistbench gate --bisect-versions``: which releases are searched, and the two environments of each gate."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mnistbench.core.errors import UsageError
from mnistbench.gate.bisection import Bisection, bisect
from mnistbench.gate.environments.packages import Installed, asked
from mnistbench.gate.environments.releases import asked_range, releases
from mnistbench.gate.environments.sides import Changes
from mnistbench.gate.verdict.result import Verdict

FLAG = "--bisect-versions"

#: Options that name the sides in another way, measure nothing, or are for a search among commits.
_OTHERS = (
    "--base", "--base-dir", "--replay", "--base-python", "--head-python", "--base-env", "--head-env",
    "--base-with", "--head-with", "--bisect",
)  # fmt: skip


def check_options(parsed: argparse.Namespace) -> None:
    """Refuse options that cannot be given together with ``--bisect-versions``.

    Raises:
        UsageError: names one of them.
    """
    for option in _OTHERS:
        if getattr(parsed, option.removeprefix("--").replace("-", "_")) not in (None, False):
            raise UsageError(
                f"{FLAG}: compares releases under the working tree as it is, so {option} cannot be given; remove it"
            )


def bisected(
    text: str,
    packages: Sequence[Installed],
    gate: Callable[[Changes, tuple[str, ...], float], tuple[str, Verdict]],
    budget_s: float,
    say: Callable[[str], None],
) -> Bisection:
    """Search the releases that ``--bisect-versions`` names.

    Args:
        text: the value of the option.
        packages: what is installed now.
        gate: runs a gate: (requirements of each side, node ids of the cases or none for all, seconds it may take) -> (file of
            raw samples, verdict).
        budget_s: seconds that all gates together may take.
        say: receives lines of progress.

    Raises:
        UsageError: the value cannot be used, or uv fails.
        MnistbenchError: the first gate cannot be run.
    """
    wanted = asked_range(FLAG, text, packages)
    bisection = Bisection(wanted.name, releases(FLAG, wanted))
    say(
        f"{len(bisection.releases)} releases of {wanted.name}: {', '.join(bisection.releases)}; "
        f"{_at_most(bisection.most_gates)}"
    )

    def measure(release: str, only: tuple[str, ...], budget_s: float) -> tuple[str, Verdict]:
        ends = {"base": bisection.releases[0], "new": release}
        changes = {side: asked(FLAG, [f"{wanted.name}=={version}"], packages) for side, version in ends.items()}
        return gate(changes, only, budget_s)

    return bisect(bisection, measure, say, budget_s=budget_s)


def _at_most(gates: int) -> str:
    return "1 gate" if gates == 1 else f"at most {gates} gates, and one more for each that cannot judge its release"
