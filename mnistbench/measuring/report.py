"""Environment -> text with one field per line, for bug reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from tabulate import tabulate

from mnistbench.core import units
from mnistbench.core.record import Environment


def environment_text(environment: Environment, allocator_status: str) -> str:
    """Return a line per field; accelerators have a line each."""
    return tabulate(environment_rows(environment, allocator_status), tablefmt="plain", disable_numparse=True)


def environment_rows(environment: Environment, allocator_status: str) -> list[tuple[str, str]]:
    """Return (name, text) of each field; of a field with several lines, only the first has the name."""
    fields = asdict(environment)
    devices, allocator = fields.pop("devices"), fields.pop("allocator")
    lines = [(name.replace("_", " "), str(value)) for name, value in fields.items()]
    lines.append(("allocator", allocator_status.removeprefix("allocator ")))
    lines.extend(("", f"{name}={value}") for name, value in allocator.items())
    lines.extend(("accelerator", _device(device)) for device in devices)
    if not devices:
        lines.append(("accelerator", "none available to torch"))
    return lines


def _device(device: Mapping[str, str]) -> str:
    memory = device.get("memory", "")
    known = memory.isdecimal() and len(memory) < 20  # a saved file may hold any text
    shown = {**device, "memory": units.size(int(memory))} if known else device
    return ", ".join(f"{name} {value}" for name, value in shown.items())
