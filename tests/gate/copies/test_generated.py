"""Files that a build has written: both sides have them only if no source of them may differ."""

import pytest
from git_repositories import Repository

from mnistbench.core.errors import UsageError
from mnistbench.gate.copies.generated import may_be_source
from mnistbench.gate.copies.trees import check_generated, copy_revision, copy_working_tree

pytestmark = pytest.mark.usefixtures("alone")

NATIVE = "package/native.so"


@pytest.fixture
def built(tmp_path):
    """A repository that ignores what its build writes."""
    repository = Repository(tmp_path / "project")
    repository.write(".gitignore", "_version.py\ntables.py\nconversion.py\n*.so\n")
    repository.write("package/__init__.py")
    repository.write("package/part.py", "one")
    repository.write("package/native.c", "int one;\n")
    for name in ("package/native.py", "CMakeLists.txt", "tables.txt", "make_tables.py"):
        repository.write(name, "one")
    repository.write("pyproject.toml", '[project]\nversion = "1"\n')
    repository.commit()
    return repository


@pytest.fixture
def check(built, tmp_path):
    """Copy both sides into a new folder, and check the generated files."""

    def copied():
        into = tmp_path / f"copies{len(list(tmp_path.iterdir()))}"
        into.mkdir()
        base = copy_revision(built.path, "HEAD", into / "base")
        assert base.generated
        check_generated(base, copy_working_tree(built.path, into / "head"))

    return copied


@pytest.mark.parametrize(
    ("source", "generated"),
    [
        ("package/native.c", NATIVE),
        ("package/native.py", NATIVE),  # as mypyc compiles it
        ("CMakeLists.txt", NATIVE),
        ("new.cpp", NATIVE),  # untracked
        ("package/values.inc", NATIVE),
        ("tables.txt", "package/tables.py"),
        ("tables.txt", "package/conversion.py"),  # no version file, in spite of its name
        ("make_tables.py", "package/tables.py"),
    ],
)
def test_a_base_without_its_own_generated_files_is_refused(built, check, source, generated):
    built.write(generated, "built")
    built.write("README.md", "untracked")
    built.write("package/part.py", "two")
    built.write("pyproject.toml", '[project]\nversion = "2"\n')
    check()
    built.write(source, "open('package/tables.py', 'w')")
    is_new = source in {"new.cpp", "package/values.inc"}
    how = "is not in" if is_new else "differs from"
    commit = built.git("rev-parse", "HEAD")[:7]
    with pytest.raises(UsageError) as raised:
        check()
    assert str(raised.value) == (
        f"{generated} is built from the working tree, and {source}, which may be a source of it, "
        f"{how} {commit}; build the base in a checkout of its own, and name it with --base"
        f"{'; if it is untracked and no source, ignore it in .git/info/exclude' if is_new else ''}"
    )


def test_a_change_that_git_is_told_to_overlook_counts(built, check):
    built.write(NATIVE, "built")
    built.git("update-index", "--assume-unchanged", "package/native.c")
    built.write("package/native.c", "int two;\n")
    with pytest.raises(UsageError, match=r"package/native\.c, which may be a source"):
        check()


def test_a_file_of_a_submodule_counts(built, check, tmp_path):
    other = Repository(tmp_path / "other")
    other.write("include/part.h", "int one;\n")
    other.commit()
    built.add_submodule(other, "vendor")
    built.write(NATIVE, "built")
    check()
    (built.path / "vendor/include/part.h").write_text("int two;\n")
    with pytest.raises(UsageError, match=r"vendor/include/part\.h, which may be a source"):
        check()


def test_a_version_file_may_be_of_another_version(built, check):
    built.write("package/_version.py", "built")
    built.write("package/native.c", "int two;\n")
    check()


@pytest.mark.parametrize(
    "source",
    [
        "Makefile",
        "build.ninja",
        "flags.mk",
        "configure.ac",
        "SConstruct",
        "BUILD.bazel",
        "meson_options.txt",
        "config.h.in",
        "m4/find.m4",
        "rust-toolchain.toml",
        "setup.cfg",
        "tox.ini",
        "package/table.dat",
        "package/kernels",
        "requirements-build.txt",
        "setup.py",
        "tools/generate.py",
        "noxfile.py",
        "package/_build_utils/flags.py",
        "package/_cffi_src.py",
        "package/gen_tables.py",
        "vendor/library",
        "Cargo.lock",
    ],
)
def test_any_file_may_be_a_source_of_a_compiled_one(source, tmp_path):
    assert may_be_source(source, NATIVE, (tmp_path, tmp_path))


@pytest.mark.parametrize(
    "source",
    [
        "package/part.py",
        "package/models/generic.py",
        "package/models/builder.py",
        "conftest.py",
        "test_speed.py",
        "tests/make_data.py",
        "tests/data.txt",
        "benchmarks/speed.py",
        "docs/conf.py",
        "docs/picture.png",
        "README.md",
        "CHANGES.rst",
        "LICENSE",
        ".github/workflows/test.yml",
        ".pre-commit-config.yaml",
        ".benchmarks/Linux/0001.json",
        "ruff.toml",
        "uv.lock",
        "requirements-dev.txt",
    ],
)
def test_documentation_tests_and_python_are_no_sources(source, tmp_path):
    (tmp_path / "package/models").mkdir(parents=True)
    (tmp_path / "package/models/__init__.py").touch()
    assert not may_be_source(source, NATIVE, (tmp_path, tmp_path))


def test_a_compiled_file_of_the_tests_may_be_built_from_them(tmp_path):
    generated = "package/tests/native.so"
    assert may_be_source("package/tests/native.c", generated, (tmp_path, tmp_path))
    assert not may_be_source("package/tests/native.c", NATIVE, (tmp_path, tmp_path))
    assert not may_be_source("package/tests/test_native.py", generated, (tmp_path, tmp_path))


@pytest.mark.parametrize(
    ("base", "head", "counts"),
    [
        ('[project]\nversion = "1"', '[project]\nversion = "2"\ndependencies = ["x"]', False),
        ("", '[tool.ruff]\nline-length = 9\n[tool.pytest.ini_options]\naddopts = ""', False),
        ("", '[dependency-groups]\ntest = ["pytest"]', False),
        ("# one", "# two", False),
        ("", '[build-system]\nrequires = ["cython<3"]', True),
        ("", "[tool.setuptools]\ninclude-package-data = true", True),
        ("", '[tool.meson-python.args]\nsetup = ["-Doptimization=3"]', True),
        ("", '[tool.scikit-build]\ncmake.build-type = "Debug"', True),
        ("", '[project]\nrequires-python = ">=3.12"', True),  # the limited API
        ("", "this is no TOML", True),
        (None, "", True),
    ],
)
def test_of_a_pyproject_only_settings_of_a_build_count(base, head, counts, tmp_path):
    for name, content in (("base", base), ("head", head)):
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "pyproject.toml").write_text(content)
    copies = (tmp_path / "base", tmp_path / "head")
    assert may_be_source("pyproject.toml", NATIVE, copies) == counts
