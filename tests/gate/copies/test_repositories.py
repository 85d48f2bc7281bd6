"""Submodules, files of git LFS, sparse checkouts and linked worktrees.

Both copies have files by the same rule, or the gate says in one line what a side lacks.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from git_repositories import Repository, names_of

from mnistbench.core.errors import UsageError
from mnistbench.gate.copies.trees import check_alike, copy_revision, copy_working_tree

pytestmark = pytest.mark.usefixtures("alone")


@pytest.fixture
def into(tmp_path):
    """Where copies are made."""
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder that the first test fills."""
    return tmp_path_factory.mktemp("template")


@pytest.fixture
def samples(template, alone, tmp_path):
    """A repository that is a submodule of another one, ``project``, and has one of its own."""
    if not list(template.iterdir()):  # it takes as long as a test
        words = Repository(template / "words")
        words.write("words.txt", "one")
        words.commit()
        samples = Repository(template / "samples")
        samples.write("sample.txt", "one")
        samples.add_submodule(words, "deep/words")
        project = Repository(template / "project")
        project.write(".gitignore", "*.log\n_version.py\n")
        project.add_submodule(samples, "data/samples")
        update(project)
    shutil.copytree(template, tmp_path, symlinks=True, dirs_exist_ok=True)
    return Repository.at(tmp_path / "samples")


@pytest.fixture
def repository(samples, tmp_path):
    return Repository.at(tmp_path / "project")


def update(repository, *options):
    local = "protocol.file.allow=always"
    repository.git("-c", local, "submodule", "update", "--init", *(options or ("--recursive",)))


FILES = [
    ".gitignore",
    ".gitmodules",
    "data/samples/.gitmodules",
    "data/samples/deep/words/words.txt",
    "data/samples/sample.txt",
]


def both(repository, into, revision="HEAD"):
    base = copy_revision(repository.path, revision, into / "base")
    head = copy_working_tree(repository.path, into / "head")
    check_alike(base, head)
    return base.root, head.root


def clone(repository, path, *arguments):
    repository.git("clone", "--quiet", *arguments, str(repository.path), str(path))
    return Repository.at(path)


def move_on(repository, name="data/samples"):
    """Record another commit of a submodule."""
    inner = Repository.at(repository.path / name)
    inner.write("sample.txt", "two")
    inner.commit()
    return repository.commit()


# ---- Submodules ----------------------------------------------------------------------------------


def test_submodules_are_on_both_sides(repository, into):
    base, head = both(repository, into)
    assert names_of(base) == names_of(head) == FILES
    assert sorted(path.name for path in into.iterdir()) == ["base", "head"]


def test_the_base_has_the_commit_that_it_records(repository, into):
    move_on(repository)
    repository.write("data/samples/sample.txt", "three")
    repository.write("data/samples/untracked.txt")
    base, head = both(repository, into, "HEAD~1")
    assert (base / "data/samples/sample.txt").read_text() == "one"
    assert (head / "data/samples/sample.txt").read_text() == "three"
    assert names_of(base) == FILES
    assert names_of(head) == sorted([*FILES, "data/samples/untracked.txt"])


@pytest.mark.parametrize("setting", ["", "core.splitIndex", "submodule.recurse"])
def test_no_submodule_changes(repository, into, setting):
    if setting:
        repository.git("config", setting, "true")
    move_on(repository)
    repository.write("data/samples/sample.txt", "three")
    before = repository.state()
    both(repository, into, "HEAD~1")
    assert repository.state() == before


def test_generated_files_of_a_submodule_are_on_both_sides(repository, into):
    repository.write("data/samples/.gitignore", "_version.py\n")
    repository.write("data/samples/package/part.py")
    move_on(repository)
    repository.write("data/samples/package/_version.py")
    base = copy_revision(repository.path, "HEAD", into / "base")
    head = copy_working_tree(repository.path, into / "head")
    assert base.generated == head.generated == ("data/samples/package/_version.py",)


def test_an_empty_submodule_is_empty_on_both_sides(repository, into, tmp_path):
    new = clone(repository, tmp_path / "clone")
    base, head = both(new, into)
    assert names_of(base) == names_of(head) == [".gitignore", ".gitmodules"]
    assert (base / "data/samples").is_dir()
    assert (head / "data/samples").is_dir()


def test_an_empty_submodule_whose_commit_differs_is_refused(repository, into, tmp_path):
    move_on(repository)
    new = clone(repository, tmp_path / "clone")
    with pytest.raises(UsageError) as raised:
        both(new, into, "HEAD~1")
    assert str(raised.value) == (
        "data/samples: a submodule that has no files in the working tree and differs between the "
        "sides; run git submodule update --init --recursive or name a checkout with --base"
    )


def test_an_empty_submodule_inside_of_a_submodule_is_named(repository, into):
    repository.git("-C", "data/samples", "submodule", "deinit", "--force", "deep/words")
    base, head = both(repository, into)
    assert names_of(base) == names_of(head) == FILES[:3] + FILES[4:]
    repository.git("-C", "data/samples", "rm", "--cached", "--quiet", "deep/words")
    shutil.rmtree(repository.path / ".git/modules/data/samples/modules")
    with pytest.raises(UsageError) as raised:
        both(repository, Path(tempfile.mkdtemp()))
    assert str(raised.value) == (
        "data/samples/deep/words: a submodule that has no files in the base and differs between "
        "the sides; name a checkout of the base with --base"
    )


def test_a_folder_as_base_without_its_submodules_is_refused(repository, into, tmp_path):
    clone(repository, tmp_path / "the base")
    name = str(tmp_path / "the base")
    base = copy_working_tree(tmp_path / "the base", into / "base", name)
    head = copy_working_tree(repository.path, into / "head")
    with pytest.raises(UsageError) as raised:
        check_alike(base, head, name)
    assert str(raised.value) == (
        "data/samples: a submodule that has no files in the base and differs between the sides; "
        f"run git -C '{name}' submodule update --init --recursive"
    )


def test_a_commit_that_a_submodule_does_not_have_is_named(repository, into, samples):
    samples.write("sample.txt", "two")
    missing = samples.commit()
    repository.git("update-index", "--cacheinfo", f"160000,{missing},data/samples")
    repository.git("commit", "--quiet", "--message", "another commit")
    with pytest.raises(UsageError) as raised:
        both(repository, into)
    assert str(raised.value) == (
        f"data/samples: this submodule has no commit {missing[:7]}, which the base records; fetch "
        "it (git -C data/samples fetch), or name a checkout with --base"
    )


@pytest.mark.parametrize("change", ["moved", "removed", "replaced"])
def test_a_submodule_that_the_head_has_not_is_found_for_the_base(repository, into, change):
    if change == "moved":
        repository.git("mv", "data/samples", "elsewhere")
    else:
        repository.git("rm", "--quiet", "data/samples")
    if change == "replaced":
        repository.write("data/samples/sample.txt", "a file of the project itself")
    repository.commit()
    base, head = both(repository, into, "HEAD~1")
    assert names_of(base) == FILES
    assert (head / "data/samples").exists() == (change == "replaced")
    assert (head / "elsewhere/deep/words/words.txt").exists() == (change == "moved")


def test_files_without_a_repository_in_the_place_of_a_submodule_are_copied(repository, into):
    (repository.path / "data/samples/.git").unlink()
    head = copy_working_tree(repository.path, into / "head")
    assert "data/samples/sample.txt" in names_of(head.root)
    with pytest.raises(UsageError, match=r"no files in the base .* --base$"):
        check_alike(copy_revision(repository.path, "HEAD", into / "base"), head)


def test_a_submodule_that_the_head_adds_is_only_there(repository, into, samples):
    repository.add_submodule(samples, "more")
    update(repository)
    base, head = both(repository, into, "HEAD~1")
    assert names_of(base) == FILES
    assert "more/sample.txt" in names_of(head)


# ---- Other checkouts -----------------------------------------------------------------------------


def test_a_linked_worktree_has_submodules_of_its_own(repository, into, tmp_path):
    repository.git("worktree", "add", "--quiet", str(tmp_path / "linked"), "HEAD")
    linked = Repository.at(tmp_path / "linked")
    update(linked, "--no-recommend-shallow")
    base, head = both(linked, into, "HEAD")
    assert names_of(base) == names_of(head) == FILES[:3] + FILES[4:]


@pytest.mark.parametrize("cone", ["--cone", "--no-cone"])
def test_a_sparse_checkout_leaves_out_the_same_on_both_sides(tmp_path, into, cone):
    repository = Repository(tmp_path / "project")
    repository.write("package/part.py", "one")
    repository.write("huge/old.dat")
    repository.commit()
    (repository.path / "huge/old.dat").unlink()
    repository.write("huge/new.dat")
    repository.write("package/part.py", "two")
    repository.commit()
    repository.git("sparse-checkout", "set", cone, "package")
    base, head = both(repository, into, "HEAD~1")
    assert names_of(base) == names_of(head) == ["package/part.py"]
    assert (base / "package/part.py").read_text() == "one"


def test_a_file_that_git_is_told_to_leave_out_is_on_no_side(tmp_path, into):
    repository = Repository(tmp_path / "project")
    repository.write("model.py")
    repository.write("fast.py")
    repository.commit()
    repository.git("update-index", "--skip-worktree", "fast.py")
    (repository.path / "fast.py").unlink()
    base, head = both(repository, into)
    assert names_of(base) == names_of(head) == ["model.py"]


def test_nothing_is_removed_where_a_link_of_the_base_leads(tmp_path, into):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "large.dat").touch()
    repository = Repository(tmp_path / "project")
    repository.write("model.py")
    (repository.path / "data").symlink_to(outside)
    repository.commit()
    (repository.path / "data").unlink()
    repository.write("data/large.dat")
    repository.commit()
    repository.git("update-index", "--skip-worktree", "data/large.dat")
    shutil.rmtree(repository.path / "data")
    base, head = both(repository, into, "HEAD~1")
    assert (outside / "large.dat").is_file()
    assert (names_of(base), names_of(head)) == (["data", "model.py"], ["model.py"])


def test_the_repository_of_a_submodule_is_looked_for_in_the_folder_of_git(repository, into):
    repository.git("mv", "data/samples", "elsewhere")
    repository.git("config", "--file", ".gitmodules", "--rename-section", "submodule.data/samples",
        f"submodule.{repository.path}/.git/modules/data/samples")  # fmt: skip
    repository.commit()
    repository.git("rm", "--quiet", "elsewhere")
    with pytest.raises(UsageError, match="elsewhere: a submodule that has no files in the base"):
        both(repository, into)


def test_a_submodule_outside_of_a_sparse_checkout_does_not_count(repository, into, tmp_path):
    move_on(repository)
    new = clone(repository, tmp_path / "clone")
    new.write("package/part.py")
    new.commit()
    new.git("sparse-checkout", "set", "package")
    base, head = both(new, into, "HEAD~2")
    assert names_of(base) == [".gitignore", ".gitmodules"]
    assert names_of(head) == [".gitignore", ".gitmodules", "package/part.py"]


# ---- Git LFS -------------------------------------------------------------------------------------


def pointer(digit):
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digit * 64}\nsize 12345\n"


@pytest.fixture
def large(tmp_path):
    """A repository whose weights git has only as a pointer: git LFS is not installed."""
    repository = Repository(tmp_path / "large")
    repository.write(".gitattributes", "*.bin filter=lfs\n")
    repository.write("data/weights.bin", pointer("1"))
    repository.commit()
    return repository


def test_pointers_that_both_sides_have_are_what_the_user_runs(large, into):
    base, head = both(large, into)
    assert names_of(base) == names_of(head)


@pytest.mark.parametrize(
    ("content", "side", "command"),
    [
        ("the weights", "base", "git lfs fetch --all"),
        (pointer("2"), "working tree", "git lfs pull"),
    ],
)
def test_a_pointer_on_one_side_is_refused(large, into, content, side, command):
    large.write("data/weights.bin", content)
    with pytest.raises(UsageError) as raised:
        both(large, into)
    assert str(raised.value) == (
        f"data/weights.bin: a pointer of git LFS, not a file, in the {side}, and it differs "
        f"between the sides; run {command}"
    )


def test_a_filter_reads_the_attributes_of_the_commit(large, into):
    # As git lfs is installed. The head has another rule.
    large.git("config", "filter.lfs.smudge", "sed s/version/content/")
    large.write(".gitattributes", "")
    base = copy_revision(large.path, "HEAD", into / "base")
    assert (base.root / "data/weights.bin").read_text().startswith("content")
