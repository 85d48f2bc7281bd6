"""The identity of a case.

Cases with equal ``Params`` are the same case; a node id is for display only.
"""

from __future__ import annotations

from dataclasses import dataclass

from mnistbench.core.errors import UsageError

#: What a case does once per call. ``forward``: the model in eval mode, inference. ``step``: one
#: training step. ``train`` and ``eval``: one pass over the training and the test set. ``batch``:
#: one batch made and put on the device.
PHASES = ("forward", "step", "train", "eval", "batch")

#: The phase of a test that calls pytest-benchmark's own fixture. What its function computes is its
#: own: batch size, dtype, seed and dataset have default values, which nothing shows.
CALL = "call"

DTYPES = ("float32", "bfloat16")

#: Step of a model whose modules and optimizer are computed as they are.
REFERENCE = "reference"
#: Step of a model by the workload's own rewrite, which computes the same function and updates.
FAST = "fast"
#: How a model is computed.
STEPS = (REFERENCE, FAST)

#: Field of ``Params`` -> its values.
_CHOICES = {"phase": (*PHASES, CALL), "dtype": DTYPES, "step": STEPS}


@dataclass(frozen=True)
class Params:
    """Everything that determines the computation of a case.

    The dataset is part of it, because operation times depend on the data.
    """

    workload: str
    phase: str  # one of PHASES, or CALL
    batch_size: int  # samples
    device: str  # name in torch: cpu, cuda, cuda:1, mps
    dtype: str  # one of DTYPES; bfloat16 is autocast, weights stay float32
    threads: int  # intra-op threads of torch
    compile: bool  # the model went through torch.compile
    seed: int
    dataset: str  # name of the dataset, which the workload gives
    step: str = REFERENCE  # one of STEPS
    # Settings of torch.compile, as settings_text returns them: reduce-overhead,fullgraph. Empty for
    # none. The options of a workload's backend are not part of it.
    compile_with: str = ""

    def __post_init__(self) -> None:
        for name, kind in Params.__annotations__.items():
            value = getattr(self, name)
            if type(value).__name__ != kind:  # a text, because annotations are postponed
                raise UsageError(f"{name}={value!r}: needs {kind}")
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise UsageError(
                    f"{name} {value!r} is not known: one of "
                    f"{', '.join(c for c in choices if c != CALL)}"
                )
        if self.batch_size < 1:
            raise UsageError(f"batch size {self.batch_size} is below 1: give a number of samples")
        if self.threads < 1:
            raise UsageError(f"threads {self.threads} is below 1: give a number of threads")
        if self.compile_with:
            self._check_compile_with()

    def _check_compile_with(self) -> None:
        from mnistbench.core.compiled.settings import arguments_of  # few commands see such cases

        if not self.compile:
            raise UsageError(f"compile_with {self.compile_with!r}: needs compile True")
        try:
            arguments_of(self.compile_with)
        except ValueError as error:
            raise UsageError(f"compile_with {self.compile_with!r} {error}") from None

    @property
    def trains(self) -> bool:
        """Whether the case updates weights."""
        return self.phase in ("step", "train")

    @property
    def variant(self) -> str:
        """How the case differs from its reference: ``, compiled with fullgraph, fast step``."""
        settings = f" with {self.compile_with}" if self.compile_with else ""
        compiled = f", compiled{settings}" if self.compile else ""
        step = f", {self.step} step" if self.step != REFERENCE else ""
        return compiled + step

    @property
    def device_label(self) -> str:
        """The device, and how the case is computed on it; see :func:`device_label`."""
        return device_label(
            self.device, self.dtype, self.compile, self.step, compile_with=self.compile_with
        )

    @property
    def label(self) -> str:
        """A short name, unique in a run: ``step convnet-b16-cpu``; of a CALL its test."""
        if self.phase == CALL:
            return self.workload
        return f"{self.phase} {self.workload}-b{self.batch_size}-{self.device_label}"

    @property
    def title(self) -> str:
        """The label with the dataset, if there is one."""
        return self.label if self.phase == CALL else f"{self.label} on {self.dataset}"


def params_of_call(test: str, device: str, threads: int) -> Params:
    """Return the parameters of a test that calls pytest-benchmark's own fixture."""
    return Params(test, CALL, 1, device, "float32", threads, compile=False, seed=0, dataset="")


def device_label(
    device: str, dtype: str, compiled: bool, step: str = REFERENCE, *, compile_with: str = ""
) -> str:
    """Return the device's part of a test id, with every value that is not the default.

    ``cpu``, ``cuda-bfloat16``, ``cpu-compiled-reduce-overhead-fullgraph``.
    """
    how_compiled = ["compiled", *filter(None, compile_with.split(","))] if compiled else []
    dtypes = [dtype] if dtype != "float32" else []
    steps = [step] if step != REFERENCE else []
    return "-".join([device, *dtypes, *how_compiled, *steps])
