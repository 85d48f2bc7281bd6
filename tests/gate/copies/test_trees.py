"""Copies of a revision and of a working tree.

Everything that belongs to them, and not a byte of the user's changes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from git_repositories import Repository, files_of, names_of

from mnistbench.core.errors import UsageError
from mnistbench.core.files import scratch
from mnistbench.gate.copies.trees import (
    all_differing,
    copy_revision,
    copy_working_tree,
    folder_of_base,
    head_of,
    repository_of,
)

pytestmark = pytest.mark.usefixtures("alone")

AWKWARD = ["with space.py", "line\nend.py", "grüße 数.py", '"quoted".py', "--all", "Icon\r", "a\\b"]


@pytest.fixture
def into(tmp_path):
    """Where copies are made."""
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


@pytest.fixture
def repository(tmp_path):
    repository = Repository(tmp_path / "project")
    repository.write("model.py", "VERSION = 1\n")
    repository.write("package/part.py", "PART = 1\n")
    repository.write(".gitignore", "*.log\n/build/\n")
    repository.commit()
    return repository


# ---- A revision ----------------------------------------------------------------------------------


def test_a_revision_is_written_out_as_it_was(repository, into):
    first = repository.git("rev-parse", "HEAD")
    repository.write("model.py", "VERSION = 2\n")
    repository.write("later.py")
    repository.commit()
    tree = copy_revision(repository.path, "HEAD~1", into / "base")
    assert names_of(tree.root) == [".gitignore", "model.py", "package/part.py"]
    assert (tree.root / "model.py").read_text() == "VERSION = 1\n"
    assert (tree.root, tree.directory, tree.what) == (into / "base", into / "base", first[:7])


def test_executables_and_links_stay_what_they_are(repository, into):
    repository.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (repository.path / "link.py").symlink_to("model.py")
    (repository.path / "folder").symlink_to("package")
    (repository.path / "dangling").symlink_to("nowhere/at all")
    repository.commit()
    expected = {
        name: what
        for name, what in files_of(repository.path).items()
        if not name.startswith(".git/")
    }
    assert expected["link.py"] == "-> model.py"
    assert expected["run.sh"].startswith("x ")
    assert files_of(copy_revision(repository.path, "HEAD", into / "base").root) == expected
    assert files_of(copy_working_tree(repository.path, into / "head").root) == expected


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_link_to_the_tree_itself_leads_into_the_copy(repository, into, is_repository):
    # Else both sides would read the user's file.
    (repository.path / "link.py").symlink_to(repository.path / "model.py")
    (repository.path / "link").symlink_to(repository.path / "package")
    (repository.path / "log").symlink_to(repository.write("ignored.log"))
    repository.commit()
    base = copy_revision(repository.path, "HEAD", into / "base")
    repository.write("model.py", "VERSION = 2\n")
    if not is_repository:
        shutil.rmtree(repository.path / ".git")
        (repository.path / "ignored.log").unlink()
    head = copy_working_tree(repository.path, into / "head")
    for version, tree in ((1, base), (2, head)):
        assert (tree.root / "link.py").read_text() == f"VERSION = {version}\n"
        assert (tree.root / "link").readlink() == tree.root / "package"
        assert (tree.root / "log").readlink() == repository.path / "ignored.log"


def test_a_file_may_have_any_name(repository, into):
    for name in AWKWARD:
        repository.write(name, "committed\n")
    repository.commit()
    for name in AWKWARD:
        repository.write(f"new/{name}", "not committed\n")
    base = copy_revision(repository.path, "HEAD", into / "base")
    head = copy_working_tree(repository.path, into / "head")
    assert names_of(base.root) == sorted([".gitignore", "model.py", "package/part.py", *AWKWARD])
    assert names_of(head.root) == sorted(
        [*names_of(base.root), *(f"new/{name}" for name in AWKWARD)]
    )


def test_a_file_may_have_a_name_that_is_no_text(repository, into):
    name = os.fsdecode(b"caf\xe9.py")
    try:
        repository.write(name)
    except OSError:
        pytest.skip("this file system takes text only")
    repository.commit()
    assert name in names_of(copy_revision(repository.path, "HEAD", into / "base").root)
    assert name in names_of(copy_working_tree(repository.path, into / "head").root)


@pytest.mark.parametrize("revision", ["old", "v1", "HEAD^{/a change}"])
def test_a_revision_is_whatever_git_calls_a_commit(repository, into, revision):
    repository.git("branch", "old")
    repository.git("tag", "--annotate", "v1", "--message", "first")
    repository.git("commit", "--quiet", "--allow-empty", "--message", "nothing new")
    tree = copy_revision(repository.path, revision, into / "base")
    assert tree.what == repository.git("rev-parse", f"{revision}^{{commit}}")[:7]


@pytest.mark.parametrize("here", [".", "package"])
def test_three_dots_after_a_branch_mean_where_the_work_left_it(repository, into, here):
    left = repository.git("rev-parse", "HEAD")
    repository.git("checkout", "--quiet", "-b", "work")
    repository.write("mine.py")
    repository.commit()
    repository.git("checkout", "--quiet", "main")
    repository.write("theirs.py")
    repository.commit()
    repository.git("checkout", "--quiet", "work")
    tree = copy_revision(repository.path / here, "main...", into / "base")
    assert tree.what == left[:7]
    assert names_of(tree.root) == [".gitignore", "model.py", "package/part.py"]


def test_no_hook_runs(repository, into):
    # post-index-change: git runs it for any index, also one that is not the repository's own.
    for hook in (
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-commit",
        "fsmonitor",
    ):
        repository.write(
            f".git/hooks/{hook}", f"#!/bin/sh\ntouch '{repository.path.parent}/{hook} ran'\n"
        ).chmod(0o755)
    # The hook that core.hooksPath does not turn off.
    repository.git("config", "core.fsmonitor", ".git/hooks/fsmonitor")
    repository.git("checkout", "--quiet", "-b", "other")
    ran = sorted(path.name for path in repository.path.parent.glob("* ran"))
    # The hooks are good ones.
    assert ran == [
        "fsmonitor ran",
        "post-checkout ran",
        "post-index-change ran",
        "reference-transaction ran",
    ]
    for name in ran:
        (repository.path.parent / name).unlink()
    copy_revision(repository.path, "HEAD", into / "base")
    copy_working_tree(repository.path, into / "head")
    head_of(repository.path)
    assert list(repository.path.parent.glob("* ran")) == []


def untidy(repository):
    repository.write("staged.py", "staged\n")
    repository.git("add", "staged.py")
    repository.write("model.py", "VERSION = 2\n")
    repository.write("untracked.py")
    repository.write("ignored.log", "log\n")
    repository.write("build/out.bin")
    (repository.path / "package/part.py").unlink()


@pytest.mark.parametrize(
    "setting",
    ["", "core.splitIndex", "core.untrackedCache", "feature.manyFiles", "core.sparseCheckout"],
)
def test_neither_the_repository_nor_the_tree_changes(repository, into, setting):
    untidy(repository)
    if setting:
        repository.git("config", setting, "true")
        repository.git("status")  # git may have written down what it wanted to
    for path in (repository.path / "model.py", repository.path / ".gitignore"):
        # What git's index knows of them is out of date.
        os.utime(path, (1_000_000_000, 1_000_000_000))
    before = repository.state()
    copy_revision(repository.path, "HEAD", into / "base")
    copy_working_tree(repository.path, into / "head")
    assert head_of(repository.path)[1]
    assert repository.state() == before
    assert sorted(path.name for path in into.iterdir()) == ["base", "head"]


def test_a_process_that_git_has_started_reads_no_other_repository(
    repository, into, tmp_path, monkeypatch
):
    # In a hook, or in git rebase --exec, these are set; they would win over the folder.
    foreign = Repository(tmp_path / "other")
    foreign.write("other.py")
    foreign.commit()
    monkeypatch.setenv("GIT_DIR", str(foreign.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(foreign.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(foreign.path / ".git/index"))
    before = files_of(foreign.path)
    assert repository_of(repository.path) == repository.path
    assert "model.py" in names_of(copy_revision(repository.path, "HEAD", into / "base").root)
    assert "model.py" in names_of(copy_working_tree(repository.path, into / "head").root)
    assert files_of(foreign.path) == before


# ---- A working tree ------------------------------------------------------------------------------


def test_a_copy_of_a_working_tree_has_uncommitted_and_no_ignored_or_deleted_files(repository, into):
    untidy(repository)
    tree = copy_working_tree(repository.path, into / "head")
    assert names_of(tree.root) == [".gitignore", "model.py", "staged.py", "untracked.py"]
    assert (tree.root / "model.py").read_text() == "VERSION = 2\n"
    assert (tree.root, tree.directory, tree.what) == (into / "head", into / "head", "working tree")


def test_a_file_that_is_tracked_is_copied_though_a_pattern_ignores_it(repository, into):
    repository.write("kept.log")
    repository.git("add", "--force", "kept.log")
    assert "kept.log" in names_of(copy_working_tree(repository.path, into / "head").root)


def test_a_repository_without_a_commit_has_a_working_tree_too(tmp_path, into):
    repository = Repository(tmp_path / "new")
    repository.write("model.py")
    assert names_of(copy_working_tree(repository.path, into / "head").root) == ["model.py"]
    with pytest.raises(UsageError) as raised:
        copy_revision(repository.path, "HEAD", into / "base")
    assert str(raised.value).startswith(
        f"--base 'HEAD': no such commit in {repository.path}, and no such folder; it has no commit "
        "yet; commit first"
    )


def test_a_repository_inside_is_no_part_of_the_tree(repository, into):
    inner = Repository(repository.path / "inner")
    inner.write("own.py")
    inner.commit()
    assert names_of(copy_working_tree(repository.path, into / "head").root) == [
        ".gitignore",
        "model.py",
        "package/part.py",
    ]


def test_a_folder_that_a_link_has_replaced_is_copied_as_the_link(repository, into, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    shutil.move(repository.path / "package", elsewhere)
    (repository.path / "package").symlink_to(elsewhere)
    tree = copy_working_tree(repository.path, into / "head")
    assert files_of(tree.root)["package"] == f"-> {elsewhere}"
    assert names_of(elsewhere) == ["part.py"]


@pytest.mark.parametrize("folder", ["", "package/"])
def test_what_gates_have_left_is_no_part_of_the_tree_and_no_change_of_it(repository, into, folder):
    repository.write(f"{folder}.benchmarks/gate/20261121_101500.jsonl.gz")
    assert names_of(copy_working_tree(repository.path, into / "head").root) == [
        ".gitignore",
        "model.py",
        "package/part.py",
    ]
    assert not head_of(repository.path)[1]


def test_a_project_in_a_subfolder_is_started_in_the_copy_of_it(repository, into):
    repository.write("projects/one/test_one.py")
    repository.commit()
    here = repository.path / "projects/one"
    for tree in (
        copy_revision(here, "HEAD", into / "base"),
        copy_working_tree(here, into / "head"),
    ):
        assert tree.directory == tree.root / "projects/one"
        assert (tree.directory / "test_one.py").is_file()
        assert (tree.root / "model.py").is_file()


def test_a_link_to_the_project_is_followed(repository, into, tmp_path):
    (tmp_path / "link").symlink_to(repository.path / "package")
    assert (
        copy_revision(tmp_path / "link", "HEAD", into / "base").directory == into / "base/package"
    )
    assert copy_working_tree(tmp_path / "link", into / "head").directory == into / "head/package"


@pytest.mark.parametrize("base_has", ["nothing", "a link"])
def test_a_subfolder_that_the_base_does_not_have_is_named(repository, into, tmp_path, base_has):
    if base_has == "a link":  # the side would run there, and write its caches
        (repository.path / "later").symlink_to(tmp_path)
        repository.commit()
        (repository.path / "later").unlink()
    repository.write("later/test_later.py")
    with pytest.raises(UsageError) as raised:
        copy_revision(repository.path / "later", "HEAD", into / "base")
    assert (
        str(raised.value)
        == f"later is not a folder of {repository.path} at that revision; start where both have one"
    )


# ---- Generated files -----------------------------------------------------------------------------


@pytest.fixture
def built(repository):
    """A repository that ignores what its build writes."""
    repository.write(".gitignore", "_version.py\n*.so\nbuild/\n")
    repository.write("package/native.c", "int one;\n")
    repository.commit()
    for name in (
        "package/_version.py",
        "package/native.so",
        "build/package/part.py",
        "data/_version.py",
    ):
        repository.write(name, "built")
    return repository


def test_files_that_a_build_writes_into_packages_are_on_both_sides(built, into):
    base = copy_revision(built.path, "HEAD", into / "base")
    head = copy_working_tree(built.path, into / "head")
    for tree in (base, head):
        assert tree.generated == ("package/_version.py", "package/native.so")
        assert (tree.root / "package/_version.py").read_text() == "built"
        assert not (tree.root / "build").exists()
        assert not (tree.root / "data").exists()


def test_a_file_of_the_revision_is_not_replaced_by_a_generated_one(built, into):
    built.write(".gitignore", "*.so\n")
    built.write("package/_version.py", "committed")
    built.commit()
    built.write(".gitignore", "_version.py\n*.so\n")
    built.git("rm", "--cached", "--quiet", "package/_version.py")
    built.write("package/_version.py", "built")
    base = copy_revision(built.path, "HEAD", into / "base")
    assert (base.root / "package/_version.py").read_text() == "committed"


@pytest.mark.parametrize("is_link", ["package", "_version.py"])
def test_a_generated_file_is_not_written_where_a_link_of_the_revision_leads(
    built, into, tmp_path, is_link
):
    outside = tmp_path / "outside"
    outside.mkdir()
    if is_link == "package":  # a folder on the way
        (built.path / "module").symlink_to(outside)
    else:  # the file itself; a link to nothing does not exist
        built.write("module/__init__.py")
        built.write(".gitignore", "*.so\n")
        (built.path / "module/_version.py").symlink_to(outside / "new.py")
    built.commit()
    built.git("rm", "-r", "--quiet", "module")
    built.write(".gitignore", "_version.py\n")
    built.write("module/__init__.py")
    built.commit()
    built.write("module/_version.py", "built")
    base = copy_revision(built.path, "HEAD~1", into / "base")
    head = copy_working_tree(built.path, into / "head")
    assert list(outside.iterdir()) == []
    assert "module/_version.py" not in base.generated
    assert "module/_version.py" in head.generated


# ---- A folder that is no repository --------------------------------------------------------------


def test_a_folder_that_is_no_repository_is_copied_nearly_whole(tmp_path, into):
    folder = tmp_path / "checkout"
    left_out = (
        ".hg/store",
        ".benchmarks/run.json",
        "a/__pycache__/x.pyc",
        ".venv/bin/python",
        "node_modules/x.js",
    )
    for name in ("model.py", "package/deep/part.py", ".hidden", *left_out):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "model.py").chmod(0o755)
    (folder / "link").symlink_to("nowhere")
    before = files_of(folder)
    tree = copy_working_tree(folder, into / "base", "../checkout")
    assert files_of(tree.root) == {
        name: what for name, what in before.items() if name not in left_out
    }
    assert (tree.directory, tree.what) == (tree.root, "../checkout")
    assert files_of(folder) == before


def test_a_checkout_that_is_a_repository_is_copied_without_what_is_ignored(repository, into):
    repository.write("ignored.log")
    tree = copy_working_tree(repository.path / "package", into / "base", "../project/package")
    assert names_of(tree.root) == [".gitignore", "model.py", "package/part.py"]
    assert (tree.directory, tree.what) == (into / "base/package", "../project/package")


def test_without_git_a_folder_is_copied_and_a_revision_is_refused(repository, into, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert names_of(copy_working_tree(repository.path, into / "head").root) == [
        ".gitignore",
        "model.py",
        "package/part.py",
    ]
    assert head_of(repository.path) == ("", False)
    with pytest.raises(UsageError) as raised:
        copy_revision(repository.path, "HEAD", into / "base")
    assert (
        str(raised.value)
        == "git is not installed, and --base with a revision needs it; install it, or name a folder"
    )


@pytest.mark.parametrize("setting", ["autocrlf", "attributes", "fileMode"])
def test_what_git_sees_as_unchanged_is_the_same_on_both_sides(repository, into, setting):
    """A setting that was made after the working tree was written."""
    repository.write("data.txt", "a\nb\n")
    repository.write("changed.txt", "a\n")
    repository.commit()
    repository.write("changed.txt", "b\n")
    if setting == "autocrlf":
        repository.git("config", "core.autocrlf", "true")
    elif setting == "attributes":
        (repository.path / ".git" / "info" / "attributes").write_text("* text eol=crlf\n")
    else:
        repository.git("config", "core.fileMode", "false")
        (repository.path / "data.txt").chmod(0o755)
    base = copy_revision(repository.path, "HEAD", into / "base")
    head = copy_working_tree(repository.path, into / "head")
    assert all_differing((base, head)) == ("changed.txt",)


def test_a_change_right_after_a_commit_is_seen(repository, into):
    """git compares the text of a file that has the size and the time of its index."""
    repository.git("config", "core.trustctime", "false")
    moment = (1_000_000_000, 1_000_000_000)
    file = repository.path / "model.py"
    file.write_text("a\n")
    os.utime(file, moment)
    repository.commit()
    os.utime(repository.path / ".git" / "index", moment)
    file.write_text("b\n")
    os.utime(file, moment)
    base = copy_revision(repository.path, "HEAD", into / "base")
    head = copy_working_tree(repository.path, into / "head")
    assert all_differing((base, head)) == ("model.py",)


def test_a_change_that_git_is_told_not_to_see_is_one(repository, into):
    repository.git("update-index", "--assume-unchanged", "model.py")
    repository.write("model.py", "VERSION = 2\n")
    base = copy_revision(repository.path, "HEAD", into / "base")
    head = copy_working_tree(repository.path, into / "head")
    assert all_differing((base, head)) == ("model.py",)


def test_a_folder_for_temporary_files_inside_the_tree_is_refused(repository, monkeypatch):
    # The copy would have a copy of itself.
    inside = repository.path / "tmp"
    inside.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    message = (
        f"{inside}: the folder for temporary files is inside {repository.path}, of which it is to "
        "hold copies; set TMPDIR to a folder outside"
    )
    with scratch("gate") as folder:
        with pytest.raises(UsageError) as raised:
            copy_revision(repository.path, "HEAD", folder / "base")
        assert str(raised.value) == message
        for _ in range(2):
            with pytest.raises(UsageError) as raised:
                copy_working_tree(repository.path, folder / "head")
            assert str(raised.value) == message
            shutil.rmtree(repository.path / ".git", ignore_errors=True)  # then a folder as any


# ---- What cannot be used -------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["nothing", "--all", "1" * 40, "main..main", "HEAD:model.py"])
def test_a_revision_that_does_not_exist_says_how_to_get_it(repository, into, revision):
    before = repository.state()
    with pytest.raises(UsageError) as raised:
        copy_revision(repository.path, revision, into / "base")
    assert str(raised.value) == (
        f"--base {revision!r}: no such commit in {repository.path}, and no such folder; "
        "name a commit, a branch or a tag"
    )
    assert list(into.iterdir()) == []
    assert repository.state() == before


@pytest.mark.parametrize("revision", ["work...", "origin/work", "origin/work..."])
def test_what_a_revision_is_fetched_by_is_its_name_there(repository, into, revision):
    repository.git("remote", "add", "origin", "elsewhere")
    with pytest.raises(UsageError, match=r"no such commit in .*; .* git fetch origin work$"):
        copy_revision(repository.path, revision, into / "base")


@pytest.mark.parametrize("revision", ["HEAD~99999", "1..2", "a b", "--all"])
def test_what_no_remote_can_have_is_not_fetched(repository, into, revision):
    repository.git("remote", "add", "origin", "elsewhere")
    with pytest.raises(UsageError, match=r"; name a commit, a branch or a tag$"):
        copy_revision(repository.path, revision, into / "base")


@pytest.mark.parametrize("revision", ["main", "main..."])
def test_a_branch_that_only_the_remote_has_is_named(repository, into, tmp_path, revision):
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", f"file://{repository.path}", str(clone))
    for command in (["checkout", "--quiet", "--detach"], ["branch", "--quiet", "-D", "main"]):
        subprocess.run(["git", *command], cwd=clone, check=True)
    with pytest.raises(UsageError) as raised:
        copy_revision(clone, revision, into / "base")
    assert str(raised.value).endswith(f"; name the branch of origin: --base origin/{revision}")


def test_a_shallow_clone_says_how_to_fetch_what_is_missing(repository, into, tmp_path):
    first = repository.git("rev-parse", "HEAD")
    repository.git("commit", "--quiet", "--allow-empty", "--message", "second")
    repository.git(
        "clone", "--quiet", "--depth", "1", f"file://{repository.path}", str(tmp_path / "shallow")
    )
    for revision in (first, "HEAD~1", "origin/work..."):
        with pytest.raises(UsageError) as raised:
            copy_revision(tmp_path / "shallow", revision, into / "base")
        assert str(raised.value) == (
            f"--base {revision!r}: no such commit in {tmp_path / 'shallow'}, and no such folder; "
            "this clone is shallow, so fetch what is missing: git fetch --unshallow"
        )
    assert (
        copy_revision(tmp_path / "shallow", "HEAD", into / "base").what
        == repository.git("rev-parse", "HEAD")[:7]
    )


def test_a_revision_counts_before_a_folder_of_the_same_name(repository, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = repository.path
    repository.git("branch", "older")
    assert folder_of_base(here, "older") is None
    for name in ("older", "built"):
        (tmp_path / name).mkdir()
    assert folder_of_base(here, "older") is None
    assert folder_of_base(here, "HEAD...") is None
    for name in ("./older", "built", str(tmp_path / "older"), "..", "../", "."):
        assert folder_of_base(here, name) == Path(name)


def test_a_folder_needs_neither_a_repository_nor_git(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "built").mkdir()
    assert folder_of_base(tmp_path, "built") == Path("built")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert folder_of_base(tmp_path, "built") == Path("built")


@pytest.mark.parametrize("name", ["./older", "../older", "/older"])
def test_what_can_only_be_a_folder_is_not_called_a_commit(repository, name):
    repository.git("branch", "older")
    with pytest.raises(UsageError) as raised:
        folder_of_base(repository.path, name)
    assert str(raised.value) == f"--base: {name!r} is not a folder; name a checkout of the base"


def test_what_is_neither_a_revision_nor_a_folder_is_one_line(repository):
    with pytest.raises(UsageError) as raised:
        folder_of_base(repository.path, "nothing")
    assert str(raised.value) == (
        f"--base 'nothing': no such commit in {repository.path}, and no such folder; name a "
        "commit, a branch or a tag"
    )


def test_of_a_long_revision_the_advice_is_shown(repository, into):
    with pytest.raises(UsageError) as raised:
        copy_revision(repository.path, 100_000 * "a", into / "base")
    assert len(str(raised.value)) < 1_000
    assert "; name a commit, a branch or a tag" in str(raised.value)


def test_a_revision_needs_a_repository(tmp_path, into):
    with pytest.raises(UsageError) as raised:
        copy_revision(tmp_path, "HEAD", into / "base")
    assert str(raised.value) == (
        f"--base 'HEAD': {tmp_path} is not in a git repository and has no such folder; name a "
        "folder"
    )
    assert repository_of(tmp_path) is None
    assert head_of(tmp_path) == ("", False)


def test_a_repository_that_git_refuses_is_not_called_none(repository, into, monkeypatch):
    # A container runs as another user than the one whose checkout is mounted: git's own variable
    # for its tests plays that.
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    with pytest.raises(UsageError) as raised:
        copy_revision(repository.path, "HEAD", into / "base")
    assert str(raised.value) == (
        f"git rev-parse: detected dubious ownership in repository at '{repository.path}'; if you "
        f"trust it, run: git config --global --add safe.directory {repository.path}"
    )


@pytest.mark.parametrize("option", ["", "../checkout"])
def test_a_full_disk_is_one_line(repository, into, monkeypatch, option):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(UsageError) as raised:
        copy_working_tree(repository.path, into / "head", option)
    assert str(raised.value) == (
        f"{option or repository.path}: cannot be copied to {into} (No space left on device); make "
        "room, or set TMPDIR"
    )


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_file_that_cannot_be_read_is_named(repository, into, monkeypatch, is_repository):
    copy2 = shutil.copy2

    def copied(source, target, **options):
        if Path(source).name == "part.py":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(source))
        return copy2(source, target, **options)

    if not is_repository:
        shutil.rmtree(repository.path / ".git")
    monkeypatch.setattr(shutil, "copy2", copied)
    with pytest.raises(UsageError) as raised:
        copy_working_tree(repository.path, into / "head")
    assert str(raised.value) == (
        f"{repository.path}/package/part.py: cannot be read (Permission denied), and the gate "
        "copies it; make it readable, or move it out of the tree"
    )


@pytest.mark.parametrize("is_repository", [True, False])
def test_a_file_that_vanishes_meanwhile_is_no_part_of_the_tree(
    repository, into, monkeypatch, is_repository
):
    for name in ("a.swp", "package/b.swp", "folder/c.swp"):
        repository.write(name)
    copy2 = shutil.copy2

    def copied(source, target, **options):
        if str(source).endswith(".swp"):
            Path(source).unlink()
        if str(source).endswith("a.swp"):
            shutil.rmtree(repository.path / "folder")
        return copy2(source, target, **options)

    if not is_repository:
        shutil.rmtree(repository.path / ".git")
    monkeypatch.setattr(shutil, "copy2", copied)
    head = copy_working_tree(repository.path, into / "head")
    assert names_of(head.root) == [".gitignore", "model.py", "package/part.py"]


@pytest.mark.parametrize("is_repository", [True, False])
def test_pipes_and_sockets_are_no_part_of_the_tree(repository, into, monkeypatch, is_repository):
    if not is_repository:
        shutil.rmtree(repository.path / ".git")
    os.mkfifo(repository.path / "package" / "pipe")
    monkeypatch.chdir(repository.path)  # the path of a socket has 107 bytes at most
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        head = copy_working_tree(repository.path, into / "head")
    assert names_of(head.root) == [".gitignore", "model.py", "package/part.py"]


def test_a_damaged_repository_is_one_line(repository, into):
    for path in (repository.path / ".git/objects").glob("??/*"):
        if (
            path.is_file()
            and repository.git("cat-file", "-t", path.parent.name + path.name) == "blob"
        ):
            path.chmod(0o644)
            path.unlink()
            break
    with pytest.raises(UsageError) as raised:
        copy_revision(repository.path, "HEAD", into / "base")
    assert re.fullmatch(r"git read-tree: unable to read .*", str(raised.value))


# ---- The commit that the head has ----------------------------------------------------------------


def test_the_head_is_a_short_commit_and_whether_it_has_changes(repository):
    commit = repository.git("rev-parse", "HEAD")[:7]
    repository.write("ignored.log")
    assert head_of(repository.path) == (commit, False)
    assert head_of(repository.path / "package") == (commit, False)
    repository.write("untracked.py")
    assert head_of(repository.path) == (commit, True)
