"""The packages of a new environment, from invented distributions."""

import json
from dataclasses import replace

import pytest
from packaging.requirements import Requirement

from mnistbench.gate.environments.packages import Installed, installed, wanted
from mnistbench.gate.environments.python import Interpreter

#: As with torch 2.15: pins in both directions, a toolkit with extras, a range, and packages that
#: have nothing to do with it.
PACKAGES = [
    Installed(
        "torch",
        "2.15.0",
        (
            "triton~=3.9.0; platform_system != 'nowhere'",
            "toolkit[blas]==13.2.2",
            "bindings<14,>=13.0.3",
            "sympy>=1.13.3",
            "windows-only==1.0; platform_system == 'nowhere'",
            "optree>=0.13; extra == 'optree'",
            "numpy<3",
        ),
    ),
    Installed("triton", "3.9.0"),
    Installed(
        "toolkit",
        "13.2.2",
        ("nvidia-blas==13.4.*; extra == 'blas'", "nvidia-fft==12.*; extra == 'fft'"),
    ),
    Installed("nvidia-blas", "13.4.1"),
    Installed("nvidia-fft", "12.2.0"),
    Installed("bindings", "13.5.0", ("pathfinder>=1.4.2",)),
    Installed("pathfinder", "1.9.0"),
    Installed("sympy", "1.14.0"),
    Installed("windows-only", "1.0"),
    Installed("numpy", "2.4.6"),
    Installed("torchvision", "0.30.0", ("torch==2.15.0", "numpy")),
    Installed("Vision_Extras", "1.0", ("torchvision==0.30.0", "not a requirement !!")),
    Installed("tqdm", "4.70.1"),
    Installed(
        "mnistbench",
        "0.1.0",
        ("torch>=2.11", "numpy>=2.0"),
        "file:///somewhere/main",
        is_editable=True,
    ),
    Installed("forked", "1.0", ("torch==2.15.0",), "git+https://example.org/forked@0123abc"),
    Installed("own-models", "0.1", ("torch",), "file:///somewhere/own", is_editable=True),
]


def lines(*changes, packages=PACKAGES):
    return wanted([Requirement(change) for change in changes], packages).lines


def test_a_package_that_nothing_is_pinned_to_changes_alone():
    assert lines("tqdm==4.66.2") == (
        "bindings==13.5.0",
        "forked @ git+https://example.org/forked@0123abc",
        "numpy==2.4.6",
        "nvidia-blas==13.4.1",
        "nvidia-fft==12.2.0",
        "pathfinder==1.9.0",
        "sympy==1.14.0",
        "toolkit==13.2.2",
        "torch==2.15.0",
        "torchvision==0.30.0",
        "tqdm==4.66.2",
        "triton==3.9.0",
        "Vision_Extras==1.0",
        "windows-only==1.0",
    )


def test_what_is_pinned_to_a_changed_package_is_left_to_uv():
    changed_lines = set(lines("tqdm==4.70.1")) - set(lines("torch==2.13.0"))
    assert changed_lines == {
        "torch==2.15.0",
        "triton==3.9.0",
        "toolkit==13.2.2",
        "nvidia-blas==13.4.1",
        "bindings==13.5.0",
        "torchvision==0.30.0",
        "Vision_Extras==1.0",
    }
    assert {"torch==2.13.0", "torchvision", "Vision_Extras"} <= set(lines("torch==2.13.0"))
    # Others require numpy.
    assert {"nvidia-fft==12.2.0", "sympy==1.14.0", "numpy==2.4.6"} <= set(lines("torch==2.13.0"))


def test_a_package_that_does_not_allow_the_new_version_has_no_version():
    packages = [
        Installed("torch", "2.15.0"),
        Installed("torchvision", "0.29.2", ("torch (>=2.14.0)",)),
    ]
    assert lines("torch==2.13.0", packages=packages) == ("torch==2.13.0", "torchvision")
    assert lines("torch==2.14.0", packages=packages) == ("torch==2.14.0", "torchvision==0.29.2")
    assert lines("torch<2.14", packages=packages) == ("torch<2.14", "torchvision==0.29.2")
    assert lines("torch==2.13.*", packages=packages) == ("torch==2.13.*", "torchvision==0.29.2")


def test_mnistbench_is_left_out_so_that_torch_may_be_older_than_it_allows():
    packages = [
        Installed("torch", "2.15.0", ("numpy<3",)),
        Installed("mnistbench", "0.1.0", ("torch>=2.11", "numpy>=2")),
        Installed("numpy", "2.4.6"),
    ]
    assert lines("torch==2.6.0", packages=packages) == ("numpy==2.4.6", "torch==2.6.0")
    assert lines("numpy==2.0", packages=packages) == ("numpy==2.0", "torch==2.15.0")
    assert lines("mnistbench==0.2", packages=packages) == (
        "mnistbench==0.2",
        "numpy==2.4.6",
        "torch==2.15.0",
    )


def test_a_requirement_that_is_met_changes_nothing():
    packages = [package for package in PACKAGES if package.name != "forked"]
    assert lines("torch==2.15.0", packages=packages) == lines("sympy==1.14.0", packages=packages)
    assert lines("torch>=2.14", packages=packages) == tuple(
        sorted({*lines("torch==2.15.0", packages=packages), "torch>=2.14"}, key=str.lower)
    )


def test_several_changes_extras_and_files_are_possible():
    assert lines("torch==2.13.0", "triton==3.6.0")[-3:] == (
        "triton==3.6.0",
        "Vision_Extras",
        "windows-only==1.0",
    )
    assert "nvidia-fft==12.2.0" not in lines("toolkit[fft]==13.0.0")
    assert lines("tqdm @ file:///wheels/tqdm-5.whl", packages=[PACKAGES[12]]) == (
        "tqdm @ file:///wheels/tqdm-5.whl",
    )


def test_packages_that_pin_each_other_end():
    packages = [
        Installed("a", "1", ("b==1",)),
        Installed("b", "1", ("a==1",)),
        Installed("c", "1", ("b==1",)),
    ]
    assert lines("a==2", packages=packages) in {("a==2", "b", "c"), ("a==2", "c")}


def test_what_a_changed_package_requires_may_change_with_it():
    def loose(*changes):
        return wanted([Requirement(change) for change in changes], PACKAGES).loose

    assert loose("tqdm==4.66.2") == ()
    assert loose("torch==2.13.0") == ("numpy==2.4.6", "pathfinder==1.9.0", "sympy==1.14.0")
    assert loose("torch==2.13.0", "sympy==1.13.1") == ("numpy==2.4.6", "pathfinder==1.9.0")
    assert set(loose("torch==2.13.0")) <= set(lines("torch==2.13.0"))


def test_markers_are_those_of_the_interpreter_of_the_environment():
    packages = [
        Installed("torch", "2.15.0", ("triton~=3.9.0; python_version < '3.9'",)),
        Installed("triton", "3.9.0"),
    ]
    changes = [Requirement("torch==2.13.0")]
    older = replace(Interpreter.own(), version="3.8.1 (main)")
    assert wanted(changes, packages).lines == ("torch==2.13.0", "triton==3.9.0")
    assert wanted(changes, packages, older).lines == ("torch==2.13.0",)


# ---- What is installed ---------------------------------------------------------------------------


class Distribution:
    def __init__(self, name, version, direct="", requires=None, sizes=None):
        self.name = name
        self.metadata = {"Name": name} if name else {}
        self.version = version
        self.requires = requires
        self._direct = direct
        self.files = None if sizes is None else [type("File", (), {"size": size}) for size in sizes]

    def read_text(self, name):
        assert name == "direct_url.json"
        return self._direct or None


def test_installed_distributions_are_read_by_name_and_the_first_of_each_counts():
    packages = installed(
        [
            Distribution("b", "1", sizes=[3, None, 4]),
            Distribution("A.x", "2", requires=["b"]),
            Distribution("a-x", "1"),
            Distribution(None, None),
        ]
    )
    assert packages == [Installed("A.x", "2", ("b",)), Installed("b", "1", size_bytes=7)]


@pytest.mark.parametrize(
    ("name", "direct", "line"),
    [
        ("a", {"url": "file:///wheels/a.whl", "archive_info": {}}, "a @ file:///wheels/a.whl"),
        ("a", {"url": "file:///a", "dir_info": {}}, "a @ file:///a"),
        ("a", {"url": "file:///a", "dir_info": {"editable": True}}, ""),
        ("mnistbench", {"url": "file:///a", "dir_info": {"editable": True}}, ""),
        ("mnistbench", {"url": "file:///a", "dir_info": {}}, ""),
        ("mnistbench", {}, ""),
        (
            "a",
            {
                "url": "https://x.org/a",
                "vcs_info": {"vcs": "git", "commit_id": "01ab"},
                "subdirectory": "s",
            },
            "a @ git+https://x.org/a@01ab#subdirectory=s",
        ),
        ("a", ["no", "object"], "a==1.0"),
        ("a", {}, "a==1.0"),
    ],
)
def test_what_was_installed_from_elsewhere_is_installed_from_there(name, direct, line):
    [package] = installed([Distribution(name, "1.0", json.dumps(direct))])
    assert package.line == line


def test_this_environment_has_what_the_tests_need():
    names = {package.key for package in installed(Interpreter.own().distributions())}
    assert {"pytest", "packaging"} <= names
