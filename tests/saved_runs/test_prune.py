"""What is removed with a saved run, and what never is, whatever a file says."""

import shutil

import builders
import pytest

from mnistbench.core.errors import UsageError
from mnistbench.saved_runs.command import plan, remove
from mnistbench.saved_runs.storage import SavedRun

SESSIONS = [f"20261120-10300{number}" for number in range(4)]


@pytest.fixture
def tensorboard(tmp_path):
    """A folder with a session's directory for each of four runs."""
    root = tmp_path / ".benchmarks/tensorboard"
    for session in SESSIONS:
        (root / session / "step-convnet").mkdir(parents=True)
        (root / session / "step-convnet/events.out").write_text("curve")
    return root


def saved(tmp_path, number, *directories):
    """A run on disk whose cases say that their curves are in these directories."""
    path = tmp_path / f".benchmarks/000{number}_base.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    cases = [
        builders.case_record(scalars=builders.scalars(directory=directory), seed=seed)
        for seed, directory in enumerate(directories)
    ]
    return SavedRun(path, builders.summary(*cases))


def runs(tmp_path, count=4):
    return [
        saved(tmp_path, number, f".benchmarks/tensorboard/{SESSIONS[number]}/step-convnet")
        for number in range(count)
    ]


def test_all_but_the_newest_go_with_their_directories(tmp_path, tensorboard):
    all_runs = runs(tmp_path)
    files, directories, left = plan(all_runs, 1, tensorboard)
    assert files == [run.path for run in all_runs[:3]]
    assert directories == [tensorboard / session for session in SESSIONS[:3]]
    assert left == []


@pytest.mark.parametrize("keep", [4, 1_000])
def test_no_run_is_removed_if_no_more_are_saved_than_are_kept(tmp_path, tensorboard, keep):
    assert plan(runs(tmp_path), keep, tensorboard) == ([], [], [])


def test_a_directory_that_a_run_which_stays_names_too_stays(tmp_path, tensorboard):
    # Two files of one session: --benchmark-save and --benchmark-json.
    shared = f"tensorboard/{SESSIONS[0]}/step-convnet"
    files, directories, _ = plan(
        [saved(tmp_path, 1, shared), saved(tmp_path, 2, shared)], 1, tensorboard
    )
    assert [path.name for path in files] == ["0001_base.json"]
    assert directories == []


def test_a_directory_that_several_cases_name_is_removed_once(tmp_path, tensorboard):
    old = saved(tmp_path, 1, f"t/{SESSIONS[0]}/step", f"t/{SESSIONS[0]}/train", "")
    assert plan([old, saved(tmp_path, 2, "")], 1, tensorboard)[1] == [tensorboard / SESSIONS[0]]


@pytest.mark.parametrize(
    "directory",
    [
        "../../x",
        "/etc",
        "..",
        "x" * 5_000,
        "\0/x",
        "20261120-103000/../../x",
    ],
    ids=lambda directory: ascii(directory)[:30],
)
def test_a_file_cannot_have_anything_else_removed(tmp_path, tensorboard, directory):
    files, directories, _ = plan(
        [saved(tmp_path, 1, directory), saved(tmp_path, 2, "")], 1, tensorboard
    )
    assert [path.name for path in files] == ["0001_base.json"]
    assert directories == []


def test_a_directory_outside_is_named_and_left_alone(tmp_path, tensorboard):
    # From before --bench-tensorboard was moved.
    elsewhere = tmp_path / "runs\x1b[31m"
    elsewhere.mkdir()
    old = [saved(tmp_path, 1, str(elsewhere), "gone"), saved(tmp_path, 2, str(elsewhere))]
    _, directories, left = plan([*old, saved(tmp_path, 3, "/")], 1, tensorboard)
    assert directories == []
    assert left == [f"left alone, outside {tensorboard}: {str(elsewhere)!r}"]
    assert "\x1b" not in left[0]


def test_what_a_link_points_to_is_not_removed(tmp_path, tensorboard):
    precious = tmp_path / "precious"
    precious.mkdir()
    (tensorboard / "20261120-110000").symlink_to(precious)
    directories = plan(
        [saved(tmp_path, 1, "t/20261120-110000/step"), saved(tmp_path, 2, "")], 1, tensorboard
    )[1]
    assert directories == []


def test_a_run_of_plain_benchmarks_has_no_directory(tmp_path, tensorboard):
    plain = builders.saved_benchmark(builders.case_record())
    plain["extra_info"] = {}
    run = SavedRun(tmp_path / "0001_plain.json", builders.summary(benchmarks=[plain]))
    assert plan([run, run], 1, tensorboard) == ([run.path], [], [])


def test_files_and_directories_are_gone_and_nothing_else(tmp_path, tensorboard):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").write_text("kept")
    (tensorboard / SESSIONS[0] / "link").symlink_to(precious)
    all_runs = runs(tmp_path)
    all_runs[0].path.unlink()  # somebody else removed it meanwhile
    files, directories, _ = plan(all_runs, 2, tensorboard)
    remove(files, directories)
    assert [run.path.exists() for run in all_runs] == [False, False, True, True]
    assert sorted(path.name for path in tensorboard.iterdir()) == SESSIONS[2:]
    assert (tensorboard / SESSIONS[2] / "step-convnet/events.out").read_text() == "curve"
    assert (precious / "data").read_text() == "kept"


def test_what_cannot_be_removed_is_named_and_what_follows_stays(tmp_path, tensorboard, monkeypatch):
    # Directories first: the file that names one is still there when the command runs again.
    [run] = runs(tmp_path, 1)

    def rmtree(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    with pytest.raises(UsageError) as error:
        remove([run.path], [tensorboard / SESSIONS[0]])
    assert str(error.value) == (
        f"{tensorboard / SESSIONS[0]} cannot be removed (Permission denied); what follows it stays"
    )
    assert run.path.exists()
    with pytest.raises(UsageError, match="cannot be removed"):
        remove([tmp_path], [])  # a folder cannot be unlinked, by an administrator neither
