"""Settings of ``torch.compile``: from a text to arguments and back, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mnistbench.core.compiled.settings import (
    arguments_of,
    check_arguments,
    read_settings,
    settings_text,
)

ALL = (
    "choose of default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs, dynamic, "
    "static, fullgraph"
)


@pytest.mark.parametrize(
    ("text", "arguments", "usual"),
    [
        ("default", {"mode": "default"}, ""),
        ("max-autotune", {"mode": "max-autotune"}, "max-autotune"),
        (
            "fullgraph, reduce-overhead",
            {"fullgraph": True, "mode": "reduce-overhead"},
            "reduce-overhead,fullgraph",
        ),
        ("fullgraph,static", {"fullgraph": True, "dynamic": False}, "static,fullgraph"),
        ("dynamic,dynamic", {"dynamic": True}, "dynamic"),
    ],
)
def test_settings_are_read_in_any_order(text: str, arguments: dict[str, Any], usual: str) -> None:
    assert read_settings(text) == arguments
    assert settings_text(arguments) == usual
    assert settings_text(arguments_of(usual)) == usual


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("fast", f"is not known; {ALL}"),
        ("fullgraph,fast", f"has the setting 'fast', which is not known; {ALL}"),
        ("fullgraph,", f"has the setting '', which is not known; {ALL}"),
        ("backend=eager", f"is not known; {ALL}"),
        (
            "default,fullgraph,max-autotune",
            "has default and max-autotune; choose one",
        ),
        ("static,dynamic", "has static and dynamic; choose one"),
    ],
)
def test_wrong_settings_are_refused_with_the_fix(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        read_settings(text)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, ""),
        ({"mode": None, "dynamic": None, "fullgraph": False}, ""),
        ({"backend": "aot_eager", "dynamic": False}, "static,backend=aot_eager"),
        ({"backend": print, "options": {"trace.enabled": True}, "fullgraph": True}, "fullgraph"),
    ],
)
def test_options_and_functions_are_not_in_the_text(arguments: dict[str, Any], text: str) -> None:
    check_arguments(arguments)
    assert settings_text(arguments) == text
    assert settings_text(arguments_of(text)) == text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("fullgraph", "is 'fullgraph'; give a dict such as {'fullgraph': True}"),
        ({"modus": 1}, "has 'modus'; choose of mode, dynamic, fullgraph, backend, options"),
        (
            {"mode": "fast"},
            (
                "has the mode 'fast'; choose of default, reduce-overhead, max-autotune, "
                "max-autotune-no-cudagraphs"
            ),
        ),
        ({"dynamic": "yes"}, "has dynamic 'yes'; give True or False"),
        ({"fullgraph": 1}, "has fullgraph 1; give True or False"),
        ({"backend": "a,b"}, "has the backend 'a,b'; give its name, or a function"),
        ({"backend": 3}, "has the backend 3; give its name, or a function"),
        (
            {"mode": "max-autotune", "options": {"trace.enabled": True}},
            "has mode and options; give one of them",
        ),
    ],
)
def test_wrong_arguments_are_refused_with_the_fix(arguments: object, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        check_arguments(arguments)
