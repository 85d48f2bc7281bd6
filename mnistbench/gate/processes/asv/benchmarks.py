"""Benchmarks as asv-runner discovers them, and what asv does around the calls of one.

Only public names of asv-runner, and attributes that its classes have for subclasses.
"""

from __future__ import annotations

import itertools
import pickle
import re
import types
from collections.abc import Iterator
from typing import Any, Self

import pytest
from asv_runner.benchmarks import benchmark_types
from asv_runner.benchmarks.mark import SkipNotImplemented
from asv_runner.benchmarks.time import TimeBenchmark
from asv_runner.discovery import disc_benchmarks

#: asv-runner's name of a kind of benchmark -> why the gate leaves it out. Those of the kind "time"
#: that are left out are the ones named timeraw.
_OTHER_KINDS = {
    "memory": "is a benchmark of the size of an object, not of time",
    "peakmemory": "is a benchmark of peak memory, not of time",
    "time": "is a benchmark of code in processes of its own (timeraw)",
    "track": "is a benchmark of a value that it returns (track), not of time",
}

#: Why a benchmark is left out with some of its parameters.
_IN_SKIP_PARAMS = "is skipped: skip_for_params names its parameters"


class _MemoryBenchmark(TimeBenchmark):  # type: ignore[misc]  # asv-runner has no types
    """A benchmark of the size of an object, which asv-runner does not know without pympler."""

    name_regex = re.compile("^(Mem[A-Z_].+)|(mem_.+)$")

    def __init__(self, *made_of: Any) -> None:
        super().__init__(*made_of)
        self.type = "memory"


benchmark_types.append(_MemoryBenchmark)


class MeasuredBenchmark(TimeBenchmark):  # type: ignore[misc]  # asv-runner has no types
    """A benchmark with one set of parameters, whose calls pytest-benchmark's fixture makes."""

    @classmethod
    def of(cls, found: Any, position: int) -> Self:
        """Return a benchmark with an instance of its own, as in a process of its own.

        Args:
            found: by asv-runner.
            position: of the parameters.
        """
        function, *owner, module = found._attr_sources  # noqa: SLF001  # what it is made of
        if owner:
            instance = type(owner[0])()
            if isinstance(function, types.MethodType) and function.__self__ is owner[0]:
                function = types.MethodType(function.__func__, instance)
            owner = [instance]
        benchmark = cls(found.name, function, [function, *owner, module])
        benchmark.set_param_idx(position)
        return benchmark

    def pickled_cache(self) -> bytes:
        """Return what ``setup_cache`` returns, as asv hands it to each benchmark."""
        return pickle.dumps(self.do_setup_cache())

    def measure(self, fixture: Any, cache: bytes | None) -> None:
        """Give the calls to the fixture, between setup and teardown.

        Args:
            fixture: pytest-benchmark's.
            cache: of ``pickled_cache``; None without one.
        """
        value = pickle.loads(cache) if cache else None  # noqa: S301  # by this process
        if value is not None and hasattr(self, "set_cache"):
            self.set_cache(value)
        elif value is not None:  # of versions before 0.2.2
            self.insert_param(value)
        self._fixture = fixture
        is_skipped = self.do_setup()
        try:
            if is_skipped:
                pytest.skip("setup raises NotImplementedError")
            self.do_run()
        except SkipNotImplemented:
            pytest.skip("raises SkipNotImplemented")
        finally:
            self.do_teardown()

    def run(self, *values: Any) -> None:
        """Give the calls to the fixture; asv-runner calls this with the arguments.

        With ``number = 1`` asv calls setup before each call, else before several.
        """
        if self.number == 1 and (self._setups or self._teardowns):
            # One round would ask for a single call.
            self._fixture.pedantic(self.func, args=values, setup=self.redo_setup, rounds=2)
        else:
            self._fixture(self.func, *values)


def discovered(module: types.ModuleType) -> Iterator[Any]:
    """Yield the benchmarks that asv-runner finds in a module, each with all its parameters."""
    # Those of the modules of a package follow.
    return itertools.takewhile(
        lambda found: found._attr_sources[-1] is module,  # noqa: SLF001  # its module
        disc_benchmarks(module.__name__),
    )


def parameter_sets(found: Any) -> list[tuple[Any, ...]]:
    """Return the values of the parameters, for each position; one empty set without parameters."""
    return list(itertools.product(*found._params))  # noqa: SLF001  # what set_param_idx counts


def why_kind_left_out(found: Any) -> str:
    """Return why the gate does not measure this kind of benchmark; empty if it does."""
    if type(found) is TimeBenchmark:
        return ""
    return _OTHER_KINDS.get(found.type, f"is a benchmark of another kind ({found.type})")


def why_skipped(found: Any, values: tuple[Any, ...]) -> str:
    """Return why asv does not run a benchmark with these parameters; empty if it does."""
    return _IN_SKIP_PARAMS if values in found._skip_tuples else ""  # noqa: SLF001
