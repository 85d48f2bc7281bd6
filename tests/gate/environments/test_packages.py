"""The packages of a new environment, from invented distributions."""

import json
from dataclasses import replace

import pytest
from packaging.requirements import Requirement

from mnistbench.gate.environments.packages import Installed, installed, requirements
from mnistbench.gate.environments.python import Interpreter

PACKAGES = [
    Installed(
        "torch",
        "2.15.0",
        (
            "triton==3.9.0; platform_system != 'nowhere'",
            "Toolkit[blas]==13.2.2",
            "bindings<14,>=13.0.3",
            "windows-only==1.0; platform_system == 'nowhere'",
            "optree==0.13; extra == 'optree'",
            "not a requirement !!",
        ),
    ),
    Installed("triton", "3.9.0"),
    Installed("toolkit", "13.2.2"),
    Installed("bindings", "13.5.0"),
    Installed("windows-only", "1.0"),
    Installed("optree", "0.13"),
    Installed("torchvision", "0.30.0", ("torch==2.15.0",)),
    Installed("nightly", "2.0.dev3"),
    Installed("old", "1.0-custom"),
    Installed("mnistbench", "0.1.0", ("torch>=2.11",)),
    Installed("forked", "1.0", (), "git+https://example.org/forked@0123abc"),
    Installed("own-models", "0.1", ("torch",), "file:///somewhere/own", is_editable=True),
]

#: The requirements of all packages but ``torch`` and those that it requires in one version.
OTHERS = [
    "bindings",
    "windows-only",
    "optree",
    "torchvision",
    "nightly>=0.dev0",
    "old",
    "forked @ git+https://example.org/forked@0123abc",
]


def lines(*changes, packages=PACKAGES, interpreter=None):
    markers = (interpreter or Interpreter.own()).markers
    return requirements([Requirement(change) for change in changes], packages, markers)


def test_only_a_changed_package_has_a_version_and_its_pins_are_left_out():
    assert lines("torch==2.13.0") == ["torch==2.13.0", *OTHERS]
    assert lines("Triton==3.6.0", "torch==2.13.0") == ["Triton==3.6.0", "torch==2.13.0", *OTHERS]
    assert lines("nightly==2.0") == [
        "nightly==2.0",
        "torch",
        "triton",
        "toolkit",
        *(line for line in OTHERS if not line.startswith("nightly")),
    ]


def test_a_changed_package_may_come_from_elsewhere():
    change = "forked @ file:///wheels/forked-5.whl"
    assert lines(change, packages=PACKAGES[-2:]) == [change]
    assert lines("mnistbench==0.2", packages=PACKAGES[-3:-2]) == ["mnistbench==0.2"]


def test_markers_are_those_of_the_interpreter_of_the_environment():
    packages = [
        Installed("torch", "2.15.0", ("triton==3.9.0; python_version < '3.9'",)),
        Installed("triton", "3.9.0"),
    ]
    older = replace(Interpreter.own(), version="3.8.1 (main)")
    assert lines("torch==2.13.0", packages=packages) == ["torch==2.13.0", "triton"]
    assert lines("torch==2.13.0", packages=packages, interpreter=older) == ["torch==2.13.0"]


# ---- What is installed ---------------------------------------------------------------------------


class Distribution:
    def __init__(self, name, version, direct="", requires=None):
        self.name = name
        self.metadata = {"Name": name} if name else {}
        self.version = version
        self.requires = requires
        self._direct = direct

    def read_text(self, name):
        assert name == "direct_url.json"
        return self._direct or None


def test_installed_distributions_are_read_by_name_and_the_first_of_each_counts():
    packages = installed(
        [
            Distribution("b", "1"),
            Distribution("A.x", "2", requires=["b"]),
            Distribution("a-x", "1"),
            Distribution(None, None),
        ]
    )
    assert packages == [Installed("A.x", "2", ("b",)), Installed("b", "1")]


@pytest.mark.parametrize(
    ("name", "direct", "line"),
    [
        ("a", {"url": "file:///wheels/a.whl", "archive_info": {}}, "a @ file:///wheels/a.whl"),
        ("a", {"url": "file:///a", "dir_info": {}}, "a @ file:///a"),
        ("a", {"url": "file:///a", "dir_info": {"editable": True}}, None),
        ("mnistbench", {"url": "file:///a", "dir_info": {"editable": True}}, None),
        ("mnistbench", {"url": "file:///a", "dir_info": {}}, None),
        ("mnistbench", {}, None),
        (
            "a",
            {
                "url": "https://x.org/a",
                "vcs_info": {"vcs": "git", "commit_id": "01ab"},
                "subdirectory": "s",
            },
            "a @ git+https://x.org/a@01ab#subdirectory=s",
        ),
        ("a", ["no", "object"], "a"),
        ("a", {}, "a"),
    ],
)
def test_what_was_installed_from_elsewhere_is_installed_from_there(name, direct, line):
    [package] = installed([Distribution(name, "1.0", json.dumps(direct))])
    assert package.is_copied == (line is None)
    assert package.is_copied or package.requirement == line


def test_this_environment_has_what_the_tests_need():
    names = {package.key for package in installed(Interpreter.own().distributions())}
    assert {"pytest", "packaging"} <= names
