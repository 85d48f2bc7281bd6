"""The environment of a run -> a line per field."""

from __future__ import annotations

from dataclasses import asdict

from tabulate import tabulate

from mnistbench.core import units
from mnistbench.core.machine import allocator_status
from mnistbench.core.record import Environment


def environment_text(environment: Environment) -> str:
    """Return a line per field; accelerators have a line each."""
    return tabulate(environment_rows(environment), tablefmt="plain", disable_numparse=True)


def environment_rows(environment: Environment) -> list[tuple[str, str]]:
    """Return (name, text) of each field.

    Of a field with several lines, only the first has the name. What is not known has no line.
    """
    fields = asdict(environment)
    devices = fields.pop("devices")
    allocator = fields.pop("allocator")
    lines = [(name.replace("_", " "), str(value)) for name, value in fields.items() if value]
    lines.append(("allocator", allocator_status(allocator).removeprefix("allocator ")))
    lines.extend(("", f"{name}={value}") for name, value in allocator.items())
    for device in devices:
        memory = device.get("memory", "")
        known = memory.isdecimal() and len(memory) < 20  # a saved file may hold any text
        shown = {**device, "memory": units.size(int(memory))} if known else device
        lines.append(("accelerator", ", ".join(f"{name} {value}" for name, value in shown.items())))
    if not devices and environment.torch:
        lines.append(("accelerator", "none available to torch"))
    return lines
