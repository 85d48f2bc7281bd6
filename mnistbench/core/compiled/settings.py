"""Settings of ``torch.compile``: as arguments, and as the text that is part of a case's identity.

``{"fullgraph": True, "mode": "reduce-overhead"}`` is ``reduce-overhead,fullgraph``. torch is not
imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: The mode of ``torch.compile`` without a mode.
DEFAULT_MODE = "default"
MODES = (DEFAULT_MODE, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

#: Setting that is not a mode -> argument of ``torch.compile`` and its value.
_OTHERS: Mapping[str, tuple[str, bool]] = {
    "dynamic": ("dynamic", True),
    "static": ("dynamic", False),
    "fullgraph": ("fullgraph", True),
}

#: Arguments of ``torch.compile`` that a workload may have.
_ARGUMENTS = ("mode", "dynamic", "fullgraph", "backend", "options")

#: What precedes the name of a backend, which comes last in a text.
_BACKEND = "backend="


def read_settings(text: str) -> dict[str, Any]:
    """Return the arguments of a comma list of settings, in any order.

    Raises:
        ValueError: what is wrong with the text, and the fix.
    """
    settings = list(dict.fromkeys(setting.strip() for setting in text.split(",")))
    arguments: dict[str, Any] = {}
    setting_of: dict[str, str] = {}  # argument -> the setting that gives it
    for setting in settings:
        if setting not in (*MODES, *_OTHERS):
            entry = "" if len(settings) == 1 else f"has the setting {setting!r}, which "
            raise ValueError(f"{entry}is not known; choose of {', '.join((*MODES, *_OTHERS))}")
        name, value = _OTHERS.get(setting, ("mode", setting))
        if name in arguments:
            raise ValueError(f"has {setting_of[name]} and {setting}; choose one")
        arguments[name] = value
        setting_of[name] = setting
    return arguments


def settings_text(arguments: Mapping[str, Any]) -> str:
    """Return the mode, ``dynamic`` or ``static``, ``fullgraph`` and the backend that are given.

    Empty for none and for the mode ``default``. Options, and a backend that is a function, are left
    out.
    """
    mode = arguments.get("mode")
    dynamic = arguments.get("dynamic")
    backend = arguments.get("backend")
    settings = [mode] if mode and mode != DEFAULT_MODE else []
    if dynamic is not None:
        settings.append("dynamic" if dynamic else "static")
    if arguments.get("fullgraph"):
        settings.append("fullgraph")
    if isinstance(backend, str):
        settings.append(f"{_BACKEND}{backend}")
    return ",".join(settings)


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a text of :func:`settings_text`.

    Raises:
        ValueError: it is no such text.
    """
    settings, _, backend = f",{text}".partition(f",{_BACKEND}")
    arguments = read_settings(settings[1:]) if settings[1:] else {}
    if backend:
        arguments["backend"] = backend
    if (usual := settings_text(arguments)) != text:
        raise ValueError(f"is not the usual text; give {usual!r}")
    return arguments


def check_arguments(arguments: object) -> None:
    """Refuse what cannot be arguments of ``torch.compile``.

    Raises:
        ValueError: what is wrong, and the fix.
    """
    if not isinstance(arguments, Mapping):
        raise ValueError(f"is {arguments!r}; give a dict such as {{'fullgraph': True}}")  # noqa: TRY004
    for name in arguments:
        if name not in _ARGUMENTS:
            raise ValueError(f"has {name!r}; choose of {', '.join(_ARGUMENTS)}")
    mode = arguments.get("mode")
    backend = arguments.get("backend")
    options = arguments.get("options")
    if mode is not None and mode not in MODES:
        raise ValueError(f"has the mode {mode!r}; choose of {', '.join(MODES)}")
    for name, values in (("dynamic", (True, False, None)), ("fullgraph", (True, False))):
        # By identity: 1 is equal to True.
        if not any(arguments.get(name, values[-1]) is value for value in values):
            raise ValueError(f"has {name} {arguments[name]!r}; give True or False")
    is_name = isinstance(backend, str) and re.fullmatch(r"[\w.-]+", backend)
    if not (backend is None or callable(backend) or is_name):
        raise ValueError(f"has the backend {backend!r}; give its name, or a function")
    if mode is not None and options is not None:  # torch refuses it later, with a traceback
        raise ValueError("has mode and options; give one of them")
