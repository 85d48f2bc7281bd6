"""Options of the plug-in: pytest's command line and configuration -> one frozen object; an error names the option.

Reading them does not import torch: devices and workloads are checked when a collected test needs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mnistbench.compare.settings import SETTINGS
from mnistbench.core.errors import UsageError
from mnistbench.core.params import DATASETS, DTYPES, REFERENCE, STEPS

if TYPE_CHECKING:
    from mnistbench.compare.thresholds import Criteria

OFF = "off"
DEFAULT_TENSORBOARD = Path(".benchmarks") / "tensorboard"


@dataclass(frozen=True)
class Options:
    """The options for the cases of a session."""

    devices: tuple[str, ...]  # as given; "auto" is resolved later
    batch_sizes: tuple[int, ...]
    workloads: tuple[str, ...]  # empty: all registered workloads
    steps: tuple[str, ...]
    dtype: str
    threads: int
    compile: bool
    dataset: str
    data_dir: str | None
    seed: int
    op_top: int
    op_iterations: int
    op_profile: bool
    op_shapes: bool
    op_benchmarks: bool
    tensorboard: Path | None  # None: off

    @classmethod
    def from_config(cls, config: pytest.Config) -> Options:
        """Read the options; the command line overrides the configuration file.

        Raises:
            UsageError: a value cannot be used.
        """
        value = {option.dest: option.read(config) for option in OPTIONS}
        return cls(
            devices=value["bench_device"],
            batch_sizes=value["bench_batch_size"],
            workloads=value["bench_model"],
            steps=value["bench_step"],
            dtype=value["bench_dtype"],
            threads=value["bench_threads"],
            compile=value["bench_compile"],
            dataset=value["bench_dataset"],
            data_dir=value["bench_data_dir"],
            seed=value["bench_seed"],
            op_top=value["op_top"],
            op_iterations=value["op_iterations"],
            op_profile=not value["no_op_profile"],
            op_shapes=value["op_shapes"],
            op_benchmarks=value["op_benchmarks"],
            tensorboard=value["bench_tensorboard"],
        )


def _names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise ValueError("a comma list with an empty name in it; leave out the extra comma")
    return tuple(dict.fromkeys(names))


def _whole(text: str, least: int, what: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise ValueError(f"not {what}; give a whole number of at least {least}")
    return number


def _at_least(least: int, what: str) -> Callable[[str], int]:
    return lambda text: _whole(text, least, what)


def _batch_sizes(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_whole(part.strip(), 1, "a batch size") for part in text.split(",")))


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"not known; choose {' or '.join(choices)}")
        return text

    return parse


def _some_of(*choices: str) -> Callable[[str], tuple[str, ...]]:
    one_of = _one_of(*choices)
    return lambda text: tuple(map(one_of, _names(text)))


def _directory(text: str) -> str | None:
    return text or None


def _tensorboard(text: str) -> Path | None:
    return None if text == OFF else Path(text or DEFAULT_TENSORBOARD)


def _workloads(text: str) -> tuple[str, ...]:
    return _names(text) if text else ()


@dataclass(frozen=True)
class _Option:
    """An option of the command line and, with the same name, of the configuration file."""

    flag: str
    metavar: str  # empty for a switch
    default: str
    parse: Callable[[str], Any]
    help: str

    @property
    def dest(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def shown(self) -> str:
        """The help with the default."""
        return f"{self.help} (default: {self.default})" if self.default else self.help

    def read(self, config: pytest.Config) -> Any:
        if not self.metavar:
            return bool(config.getoption(self.dest)) or bool(config.getini(self.dest))
        given = config.getoption(self.dest)
        text = str(config.getini(self.dest)) if given is None else given
        try:
            return self.parse(text)
        except ValueError as error:
            where = self.flag if given is not None else f"{self.dest} in {config.inipath}"
            raise UsageError(f"{where}: {text!r} is {error}") from None


OPTIONS = (
    _Option(
        "--bench-device",
        "NAMES",
        "auto",
        _names,
        "comma list of auto, cpu, cuda, cuda:1, mps; auto is the CPU and, if there is one, the accelerator",
    ),
    _Option("--bench-batch-size", "SIZES", "1,16,64", _batch_sizes, "comma list of batch sizes"),
    _Option(
        "--bench-model",
        "NAMES",
        "",
        _workloads,
        "comma list of workloads, built-in ones (convnet, lenet5) included (default: all that conftest.py registers)",
    ),
    _Option(
        "--bench-step",
        "NAMES",
        REFERENCE,
        _some_of(*STEPS),
        "comma list of reference and fast: the model as it is, and the workload's rewrite that computes the same",
    ),
    _Option("--bench-dtype", "NAME", "float32", _one_of(*DTYPES), "float32, or bfloat16 by autocast"),
    _Option("--bench-threads", "N", "1", _at_least(1, "a number of threads"), "intra-op threads of torch on the CPU"),
    _Option("--bench-compile", "", "", str, "compile every model with torch.compile"),
    _Option("--bench-dataset", "NAME", "digits", _one_of(*DATASETS), "digits, which needs no network, or mnist"),
    _Option(
        "--bench-data-dir", "DIR", "", _directory, "torchvision root of MNIST (default: MNISTBENCH_DATA, else the user's cache)"
    ),
    _Option("--bench-seed", "N", "1", _at_least(0, "a seed"), "seed of weights, batches and dropout"),
    _Option(
        "--op-top", "N", "10", _at_least(1, "a number of operations"), "number of operations to show per table; all are saved"
    ),
    _Option("--op-iterations", "N", "10", _at_least(1, "a number of iterations"), "profiled iterations of each case"),
    _Option("--no-op-profile", "", "", str, "do not profile: times only, no operation tables"),
    _Option("--op-shapes", "", "", str, "record the input shapes of operations"),
    _Option("--op-benchmarks", "", "", str, "attach operation tables to tests that use pytest-benchmark's own fixture, too"),
    _Option("--bench-tensorboard", "DIR", str(DEFAULT_TENSORBOARD), _tensorboard, "directory for TensorBoard, or off"),
)


def add_options(parser: pytest.Parser) -> None:
    """Declare all options for the command line and the configuration file."""
    group = parser.getgroup("mnistbench", "mnistbench: operation tables of benchmarks")
    for option in OPTIONS:
        if option.metavar:
            group.addoption(option.flag, metavar=option.metavar, default=None, help=option.shown)
            parser.addini(option.dest, f"{option.flag}: {option.help}", type="string", default=option.default)
        else:
            group.addoption(option.flag, action="store_true", default=False, help=option.help)
            parser.addini(option.dest, f"{option.flag}: {option.help}", type="bool", default=False)
    thresholds = parser.getgroup("mnistbench thresholds", "mnistbench: thresholds and limits for --benchmark-compare")
    for setting in SETTINGS:
        if not setting.metavar:
            thresholds.addoption(setting.flag, action="store_true", default=False, help=setting.shown)
            continue
        action = "append" if setting.repeatable else "store"
        thresholds.addoption(setting.flag, action=action, metavar=setting.metavar, default=None, help=setting.shown)
        if setting.configurable:
            kind: Literal["linelist", "string"] = "linelist" if setting.repeatable else "string"
            parser.addini(setting.name, f"{setting.flag}: {setting.help}", type=kind, default=setting.empty)


def thresholds_are_set(config: pytest.Config) -> bool:
    """Whether a setting of the comparison was given."""
    return any(
        config.getoption(setting.name) not in (None, False)
        or (setting.configurable and config.getini(setting.name) != setting.empty)
        for setting in SETTINGS
    )


def criteria_from_config(config: pytest.Config) -> Criteria:
    """Return what a comparison is judged by; the command line overrides the configuration file.

    Raises:
        UsageError: a value cannot be used, or a threshold is given without ``--benchmark-compare``.
    """
    from mnistbench.compare.thresholds import criteria_of

    for flag in ("--op-fail", "--case-fail"):
        dest = flag.removeprefix("--").replace("-", "_")
        if config.getoption(dest) and not config.getoption("benchmark_compare", default=None):
            raise UsageError(f"{flag}: needs a saved run to compare with: add --benchmark-compare")
    given = {setting.name: config.getoption(setting.name) for setting in SETTINGS}
    return criteria_of(
        given, {setting.name: config.getini(setting.name) for setting in SETTINGS if setting.configurable}, config.inipath
    )
