"""Which code the sides have imported.

The files decide, not the names of modules, installations and hooks of build tools.
"""

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import gate_builders
import pytest
from bare_environments import linked_environment

from mnistbench.gate.processes.sides.stray import (
    Imports,
    Outside,
    outside_modules,
    refusal,
    remark,
    with_copies,
)
from mnistbench.gate.processes.starting import GateError
from mnistbench.gate.words import BASE, HEAD

NAME = "gate_test_outside"


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def repository(tmp_path):
    """Where the user's own tree lies."""
    (tmp_path / "repository").mkdir()
    return tmp_path / "repository"


@pytest.fixture
def outside(tree, repository, monkeypatch):
    """The modules outside of a tree if one with this name has been imported from this path."""

    def outside_of(path, name=NAME, *, earlier=()):
        module = ModuleType(name)
        module.__file__ = os.path.normpath(path)
        monkeypatch.setitem(sys.modules, name, module)
        return outside_modules(tree, tree, Path("/nowhere"), repository, earlier)

    return outside_of


def write(*files):
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


# ---- In the process of a side --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "is_outside"),
    [
        ("repository/model.py", True),
        ("repository/src/package/__init__.py", True),
        ("tree/model.py", False),
        ("repository2/model.py", False),
        ("elsewhere/model.py", False),
    ],
)
def test_a_module_of_the_users_own_repository_is_outside(outside, tmp_path, file, is_outside):
    expected = {NAME: Outside(str(tmp_path / file), in_repository=True)} if is_outside else {}
    assert outside(tmp_path / file) == expected


def test_a_link_to_the_repository_is_the_repository(outside, tmp_path, repository):
    (tmp_path / "link").symlink_to(repository)
    assert outside(tmp_path / "link" / "model.py") == {
        NAME: Outside(str(repository / "model.py"), in_repository=True)
    }


def test_a_namespace_package_is_outside_if_none_of_its_folders_is_in_the_tree(
    tree, repository, monkeypatch
):
    package = ModuleType(NAME)
    monkeypatch.setitem(sys.modules, NAME, package)
    package.__path__ = [str(repository / "package")]
    modules = outside_modules(tree, tree, Path("/nowhere"), repository, ())
    assert modules == {NAME: Outside(str(repository / "package"), in_repository=True)}
    package.__path__ = [str(repository / "package"), str(tree / "package")]
    assert outside_modules(tree, tree, Path("/nowhere"), repository, ()) == {}


@pytest.mark.parametrize(
    ("prefix", "file", "is_outside"),
    [
        ("repository/.venv", "repository/.venv/lib/installed.py", False),
        ("repository/.venv", "repository/.venv-of-another/lib/installed.py", True),
        # The system's Python in a container: prefix /usr, project in /usr/src.
        (".", "repository/src/model.py", True),
    ],
)
def test_only_what_is_installed_may_lie_in_the_repository(
    outside, tmp_path, monkeypatch, prefix, file, is_outside
):
    monkeypatch.setattr(sys, "prefix", os.path.normpath(tmp_path / prefix))
    assert bool(outside(tmp_path / file)) is is_outside


def test_a_folder_of_installed_packages_may_lie_in_the_repository(outside, repository, monkeypatch):
    folder = repository / "__pypackages__" / "lib"
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    assert outside(folder / "installed.py")
    (folder / "installed-1.0.dist-info").mkdir(parents=True)
    assert not outside(folder / "installed.py")


@pytest.fixture
def distribution(tree, tmp_path, monkeypatch):
    """Let the project of the tree be installed with these files in site-packages."""

    def install(**files):
        folder = tmp_path / "site-packages"
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        info = folder / "own_project-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-project\nVersion: 1.0\n")
        (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
        monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
        (tree / "pyproject.toml").write_text('[project]\nname = "own-project"\n')
        return folder

    return install


def test_a_project_that_is_installed_and_not_imported_from_its_copy_is_outside(
    outside, distribution
):
    path = distribution(**{"package/part.py": ""}) / "package/part.py"
    assert outside(path) == {NAME: Outside(str(path))}


@pytest.mark.parametrize(
    ("hook", "line"),
    [
        ("__editable___own_project_1_0_finder", "import {}; {}.install()"),  # setuptools
        ("_editable_impl_own_project", "import {}"),  # hatchling and pdm with editables
        ("_own_project_editable_loader", "import {}; {}.init()"),  # meson-python
        ("_editable_skbc_own_project", "import {}\n/home/me/own-project/src"),  # scikit-build-core
    ],
)
def test_the_import_hook_of_an_editable_install_is_no_code_of_the_project(
    outside, distribution, hook, line
):
    folder = distribution(
        **{"own_project.pth": line.format(hook, hook), f"{hook}.py": "", "_own_compiled.py": ""}
    )
    assert outside(folder / f"{hook}.py", hook) == {}
    assert outside(folder / "_own_compiled.py") == {NAME: Outside(str(folder / "_own_compiled.py"))}


@pytest.mark.parametrize(
    ("own", "name", "folder"),
    [
        ("setup.py lib/package/part.py", "package.part", "lib"),
        (
            "packages/one/pyproject.toml packages/one/src/package/__init__.py",
            "package",
            "packages/one/src",
        ),
        ("python/package/part.py", "package.part", "python"),
        ("lib/package/part.abi3.so", "package.part", "lib"),
        ("lib/package/other.py", "package.part", None),
        ("vendor/package/__init__.py", "package", None),
        ("tests/package.py", "package", None),
        ("examples_src/__init__.py examples_src/package/__init__.py", "package", None),
        ("lib/package.py", "package", "lib"),
        ("package.py", "package", "."),
        ("statistics.py", "statistics", None),
    ],
)
def test_a_module_of_the_copy_that_is_imported_from_elsewhere_is_outside(
    outside, tree, tmp_path, own, name, folder
):
    write(*(tree / file for file in own.split()))
    path = tmp_path / "site-packages" / f"{name.replace('.', '/')}.py"
    copy = str(tree / own.split()[-1])
    assert outside(path, name) == (
        {} if folder is None else {name: Outside(str(path), copy, folder)}
    )


def test_no_folder_helps_if_a_hook_comes_before_the_path(outside, tree, repository, monkeypatch):
    write(tree / "src/package/__init__.py")
    monkeypatch.setattr(sys, "path", [str(tree / "src"), *sys.path])
    path = repository / "src/package/__init__.py"
    copy = str(tree / "src/package/__init__.py")
    assert outside(path, "package") == {"package": Outside(str(path), copy, "", in_repository=True)}
    assert outside(path, "package", earlier=["package"]) == {
        "package": Outside(str(path), copy, "src", in_repository=True)
    }


def test_a_package_whose_folder_has_another_name_has_a_copy_at_the_same_place(
    outside, tree, repository
):
    write(tree / "lib/source/part.py")
    path = repository / "lib/source/part.py"
    assert outside(path, "package.part") == {
        "package.part": Outside(str(path), str(tree / "lib/source/part.py"), "", in_repository=True)
    }


@pytest.mark.parametrize(
    ("modules", "is_outside"), [("version.py tags.py", True), ("build_rpm.py", False)]
)
def test_what_pytest_needs_is_outside_if_the_tree_has_a_package_of_the_same_modules(
    outside, tree, tmp_path, modules, is_outside
):
    installed = tmp_path / "site-packages" / "packaging"
    write(*(installed / name for name in ("__init__.py", "version.py", "tags.py")))
    write(*(tree / "packaging" / name for name in ("__init__.py", *modules.split())))
    imported_outside = outside(installed / "__init__.py", "packaging", earlier=["packaging"])
    assert bool(imported_outside) is is_outside
    assert all(module.folder == "." for module in imported_outside.values())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[project]\n",
        "[project]\nname = 'not-installed-anywhere'\n",
        "project = 1\n",
        "[project]\nname = 1\n",
        "no toml",
        "\xff",
    ],
)
def test_a_project_file_that_names_nothing_installed_makes_nothing_outside(outside, tree, text):
    (tree / "pyproject.toml").write_text(text, encoding="latin-1")
    assert outside("/elsewhere/model.py") == {}


def test_folders_of_the_repository_on_the_path_come_after_their_copies(
    tree, repository, monkeypatch
):
    monkeypatch.setattr(sys, "prefix", str(repository / ".venv"))
    for folder in (repository / "lib", tree / "lib", tree / ".venv/lib", repository / "build"):
        folder.mkdir(parents=True)
    paths = [
        "/usr/lib",
        str(repository / "lib"),
        str(repository / "build"),
        str(repository / ".venv/lib"),
        str(repository),
    ]
    assert list(with_copies(paths, tree, repository)) == [
        "/usr/lib",
        str(tree / "lib"),
        *paths[1:4],
        str(tree),
        str(repository),
    ]


# ---- Of both sides -------------------------------------------------------------------------------


@pytest.fixture
def sides(tmp_path):
    """What the sides have imported, each from a tree whose file m.py has this text."""

    def imports(base, head, *, copies=("old", "new")):
        imported = {}
        for side, outside, text in zip((BASE, HEAD), (base, head), copies, strict=True):
            (tmp_path / side).mkdir()
            if text is not None:
                (tmp_path / side / "m.py").write_text(text)
            if outside is None:
                imported[side] = Imports(tmp_path / side, {}, {"m": "m.py"})
                continue
            path = tmp_path / outside[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(outside[1])
            copy = "" if text is None else str(tmp_path / side / "m.py")
            imported[side] = Imports(
                tmp_path / side,
                {"m": Outside(str(path), copy, "lib", outside[0].startswith("repository"))},
            )
        return imported

    return imports


@pytest.mark.parametrize(
    ("base", "head", "copies", "reason"),
    [
        # one copy
        (
            ("repository/m.py", "new"),
            ("repository/m.py", "new"),
            ("old", "new"),
            "both sides import m",
        ),
        (
            ("repository/m.py", "new"),
            ("repository/m.py", "new"),
            ("new", "new"),
            "both sides import m",
        ),
        (("env/m.py", "x"), ("env/m.py", "x"), (None, None), "both sides import m"),
        # the head's code on both sides
        (("repository/m.py", "new"), None, ("old", "new"), "the base imports m"),
        (("repository/m.py", "new"), None, (None, "new"), "the base imports m"),
        (("repository/m.py", "new"), ("env/m.py", "other"), ("old", "new"), "the base imports m"),
        # two copies of the same code, although the trees differ
        (("env1/m.py", "x"), ("env2/m.py", "x"), ("old", "new"), "the same code"),
        (("env1/m.py", "x"), ("env2/m.py", "x"), (None, "new"), "the same code"),
        (("env1/m.py", "x"), ("env2/m.py", "x"), (None, None), "the same code"),
        (("env1/m.py", "new"), None, ("old", "new"), "the same code"),
        (None, ("env1/m.py", "old"), ("old", "new"), "the same code"),
        # two copies
        (("env1/m.py", "x"), ("env2/m.py", "y"), ("old", "new"), ""),
        (("env1/m.py", "x"), ("env2/m.py", "y"), (None, None), ""),
        (("env1/m.py", "same"), ("env2/m.py", "same"), ("same", "same"), ""),
        (("env1/m.py", "old"), None, ("old", "new"), ""),
        (None, ("repository/m.py", "new"), ("old", "new"), ""),
        (("repository/m.py", "same"), None, ("same", "same"), ""),
        (None, None, ("old", "new"), ""),
    ],
)
def test_the_same_code_is_refused_and_two_copies_are_compared(sides, base, head, copies, reason):
    reason_given = refusal(sides(base, head, copies=copies), is_same_code=False)
    assert reason in reason_given
    assert bool(reason_given) == bool(reason)


def test_where_both_sides_are_to_have_the_same_code_two_equal_files_are_two_copies(sides):
    imports = sides(("env1/m.py", "x"), ("env2/m.py", "x"), copies=(None, None))
    assert refusal(imports, is_same_code=True) == ""


def test_the_advice_is_the_path_of_the_copy_or_an_environment_for_each_side(tmp_path):
    copy = Outside("/env/m.py", "/base/lib/m.py", "lib")
    imports = {
        BASE: Imports(tmp_path, {"m": copy}),
        HEAD: Imports(tmp_path, {"m": Outside("/env/m.py", "/head/m.py", ".")}),
    }
    assert refusal(imports, is_same_code=False).endswith(
        "add --base-env PYTHONPATH=lib --head-env PYTHONPATH=."
    )
    imports[HEAD] = Imports(tmp_path, {"m": Outside("/env/m.py")})
    assert refusal(imports, is_same_code=False).endswith(
        "name them with --base, --base-python and --head-python"
    )


def test_a_package_is_named_before_its_modules(tmp_path):
    outside = {name: Outside(f"/env/{name}") for name in ("m.part", "m")}
    imports = dict.fromkeys((BASE, HEAD), Imports(tmp_path, outside))
    assert refusal(imports, is_same_code=False).startswith("both sides import m from")


def test_the_report_says_where_modules_are_imported_from(tmp_path):
    base = Imports(
        tmp_path, {name: Outside(f"/env/{name}.py") for name in ("m", "m.part", "n", "o", "p")}
    )
    head = Imports(tmp_path, {"o": Outside("/other/o.py")}, {"m": "m.py", "m.part": "m/part.py"})
    assert remark({BASE: base, HEAD: head}) == (
        "base and head import m from /env/m.py and from its copy, n from /env/n.py and from "
        "nowhere, o from /env/o.py and from /other/o.py, and 1 more"
    )
    assert remark({BASE: Imports(tmp_path), HEAD: Imports(tmp_path)}) == ""


# ---- Real processes ------------------------------------------------------------------------------

#: The module of an import hook as build tools write it for an editable install, and the line of its
#: .pth file.
HOOK = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path


class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        path = name.replace(".", "/")
        for file in (Path({where!r}, path, "__init__.py"), Path({where!r}, path + ".py")):
            if name.partition(".")[0] == "pkgown" and file.exists():
                return spec_from_file_location(name, file)


sys.meta_path.insert({position}, Finder)
"""


TEST = """
import os

from pkgown import work


def test_own(benchmark):
    assert benchmark(work, 1000) > int(os.environ.get("LEAST", "0"))
"""


def make_project(folder, layout, text):
    for name, content in {
        f"{layout}/pkgown/__init__.py": "from pkgown.part import work\n",
        f"{layout}/pkgown/part.py": f"def work(n):\n    return sum(range(n)) + {text}\n",
        "tests/test_own.py": TEST,
        "pyproject.toml": '[project]\nname = "pkg-own"\nversion = "1.0"\n',
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


def install(site_packages, repository, layout, way):
    """Install a project as build tools do."""
    files = {
        "pkg_own-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: pkg-own\nVersion: 1.0\n"
    }
    if way == "path":
        files["__editable__.pkg_own-1.0.pth"] = f"{repository / layout}\n"
    elif way == "wheel":
        for name in ("__init__.py", "part.py"):
            files[f"pkgown/{name}"] = (repository / layout / "pkgown" / name).read_text()
    else:
        position = "0" if way == "hook before the path" else "len(sys.meta_path)"
        files["__editable___pkg_own_1_0_finder.py"] = HOOK.format(
            where=str(repository / layout), position=position
        )
        files["__editable__.pkg_own-1.0.pth"] = "import __editable___pkg_own_1_0_finder\n"
    files["pkg_own-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    for name, content in files.items():
        (site_packages / name).parent.mkdir(parents=True, exist_ok=True)
        (site_packages / name).write_text(content)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """An environment with pytest alone, which the tests share one after the other."""
    folder = tmp_path_factory.mktemp("bare")
    python = linked_environment(folder / "environment", "pytest")
    [site_packages] = (folder / "environment").glob("lib/python*/site-packages")
    return python, site_packages


@pytest.fixture
def look(bare, tmp_path):
    """Survey two trees whose project is installed in this way from the user's repository.

    Return the plan and the listings.
    """
    python, site_packages = bare
    before = {path.name for path in site_packages.iterdir()}
    repository = tmp_path / "repository"

    def surveyed(layout, way, **variables):
        plan = gate_builders.plan(tmp_path, "tests")
        for folder, number in ((tmp_path / BASE, 1), (tmp_path / HEAD, 2), (repository, 2)):
            make_project(folder, layout, number)
        install(site_packages, repository, layout, way)
        plan = gate_builders.with_setup(
            plan,
            repository=repository,
            pythons=dict.fromkeys((BASE, HEAD), python),
            variables=dict.fromkeys((BASE, HEAD), variables),
        )
        result = gate_builders.surveyed(plan, tmp_path)
        return result.trial_plan(), result.surveys

    yield surveyed
    for path in site_packages.iterdir():
        if path.name not in before:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("layout", "way", "variables"),
    [
        (".", "hook after the path", {}),  # setuptools, a flat layout
        ("src", "path", {}),
        ("lib", "path", {}),
        ("lib", "hook after the path", {"PYTHONPATH": "lib"}),
        ("lib", "wheel", {"PYTHONPATH": "lib"}),
        (".", "wheel", {}),
    ],
)
def test_each_side_imports_its_own_copy_of_an_installed_project(look, layout, way, variables):
    _, surveys = look(layout, way, **variables)
    for imports in surveys.imports.values():
        assert imports.outside == {}
        assert imports.files["pkgown.part"] == os.path.normpath(f"{layout}/pkgown/part.py")


@pytest.mark.parametrize(
    ("layout", "way", "place", "advice"),
    [
        (
            ".",
            "hook before the path",
            "repository/pkgown/__init__.py",
            "--base, --base-python and --head-python",
        ),
        (
            "lib",
            "hook after the path",
            "repository/lib/pkgown/__init__.py",
            "--base-env PYTHONPATH=lib --head-env PYTHONPATH=lib",
        ),
        (
            "lib",
            "wheel",
            "site-packages/pkgown/__init__.py",
            "--base-env PYTHONPATH=lib --head-env PYTHONPATH=lib",
        ),
    ],
)
def test_an_installed_project_that_both_sides_import_is_refused_with_what_helps(
    look, layout, way, place, advice
):
    with pytest.raises(GateError) as raised:
        look(layout, way)
    message = str(raised.value)
    assert message.startswith("both sides import pkgown from ")
    assert f"{place}, not from their own copies; " in message
    assert message.endswith(advice)


def test_a_test_that_fails_on_installed_code_says_so(look):
    with pytest.raises(GateError, match=r"^both sides import pkgown from "):
        look("lib", "wheel", LEAST="1000000")
