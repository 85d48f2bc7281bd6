"""The commit that a gate compares with, by the variables of a service and by the repository."""

import json
import re
import subprocess

import pytest
from git_repositories import Repository

from mnistbench.core.errors import UsageError
from mnistbench.gate.copies.base import base_of

pytestmark = pytest.mark.usefixtures("alone")

ZEROS = "0" * 40


class Project:
    """A remote with ``main`` and ``topic``, whose last commits are not those of the other."""

    def __init__(self, folder):
        self.folder = folder
        self.remote = Repository(folder / "remote")
        self.first = self.changed("one")
        self.left = self.changed("two")
        self.remote.git("switch", "--quiet", "--create", "topic")
        self.topic = self.changed("three")
        self.remote.git("switch", "--quiet", "main")
        self.main = self.changed("four")
        # As GitHub makes it for a pull request.
        self.remote.git("switch", "--quiet", "--detach", "main")
        self.remote.git("merge", "--quiet", "--no-edit", "topic")
        self.merged = self.remote.git("rev-parse", "HEAD")
        self.remote.git("update-ref", "refs/pull/7/merge", "HEAD")
        self.remote.git("switch", "--quiet", "main")

    def changed(self, name):
        self.remote.write(f"{name}.py")
        return self.remote.commit()

    def clone(self, *arguments, branch="main"):
        return self.cloned("clone", "--quiet", "--branch", branch, *arguments)

    def checked_out(self, reference, depth):
        """A clone as actions/checkout makes it: of one reference, detached."""
        clone = Repository(self.folder / "clone")
        clone.git("remote", "add", "origin", f"file://{self.remote.path}")
        clone.git(
            "fetch", "--quiet", f"--depth={depth}", "origin", f"+{reference}:refs/remotes/job"
        )
        clone.git("checkout", "--quiet", "--detach", "refs/remotes/job")
        return clone

    def cloned(self, *arguments):
        path = self.folder / "clone"
        command = ["git", *arguments, f"file://{self.remote.path}", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        return Repository.at(path)

    def event(self, content):
        path = self.folder / "event.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def pull_request(self, **more):
        return {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_BASE_REF": "main",
            "GITHUB_REF": "refs/pull/7/merge",
            "GITHUB_SHA": self.merged,
            **more,
        }

    def push(self, before, **more):
        event = {"before": before, "repository": {"default_branch": "main"}, **more}
        return {
            "CI": "true",
            "GITHUB_EVENT_NAME": "push",
            "GITHUB_EVENT_PATH": self.event(event),
        }


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


def chosen(repository, environ=None):
    base = base_of(repository.path, environ or {})
    return base.commit, base.rule


def refusal(repository, environ=None):
    with pytest.raises(UsageError) as error:
        base_of(repository.path, environ or {})
    return str(error.value)


# ---- A clone -------------------------------------------------------------------------------------


def test_a_branch_is_compared_with_where_it_left_the_default_branch(project):
    clone = project.clone(branch="topic")
    assert chosen(clone) == (project.left, "the merge base with origin/main")
    clone.write("three.py", "a change that is not committed")
    assert chosen(clone) == (project.left, "the merge base with origin/main")


def test_the_default_branch_is_compared_with_its_parent_or_with_its_changes(project):
    clone = project.clone()
    assert chosen(clone) == (project.left, "the parent of HEAD, a commit of origin/main")
    clone.write("one.py", "a change that is not committed")
    rule = "HEAD, a commit of origin/main, without your changes"
    assert chosen(clone) == (project.main, rule)
    # What the steps of a job leave behind is no change.
    assert chosen(clone, {"CI": "true"})[0] == project.left
    assert chosen(clone, {"TF_BUILD": "True"})[0] == project.left


def test_commits_that_are_not_pushed_are_compared_with_the_remote(project):
    clone = project.clone()
    clone.write("five.py")
    clone.commit()
    clone.write("six.py")
    clone.commit()
    assert chosen(clone) == (project.main, "the merge base with origin/main")


@pytest.mark.parametrize("name", ["main", "master"])
def test_a_repository_without_a_remote_has_a_default_branch(tmp_path, name):
    repository = Repository(tmp_path / "alone")
    repository.git("switch", "--quiet", "--orphan", name)
    repository.write("one.py")
    first = repository.commit()
    assert refusal(repository) == (
        "nothing to compare: HEAD is the first commit and has no changes; give --base with a "
        "revision or a folder, or what differs, such as --base-env NAME=VALUE"
    )
    repository.git("switch", "--quiet", "--create", "topic")
    repository.write("two.py")
    repository.commit()
    assert chosen(repository) == (first, f"the merge base with {name}")


def test_the_default_branch_of_the_remote_has_any_name(project):
    project.remote.git("branch", "--move", "main", "trunk")
    clone = project.clone(branch="topic")
    project.remote.git("switch", "--quiet", "trunk")
    clone.git("remote", "set-head", "origin", "--auto")
    assert chosen(clone) == (project.left, "the merge base with origin/trunk")
    clone.git("remote", "rename", "origin", "upstream")
    clone.git("remote", "set-head", "upstream", "trunk")
    assert chosen(clone) == (project.left, "the merge base with upstream/trunk")


def test_a_folder_of_a_repository_is_enough(project):
    clone = project.clone(branch="topic")
    clone.write("package/part.py")
    assert base_of(clone.path / "package", {}).text == (
        f"{project.left[:7]}, the merge base with origin/main"
    )


def test_without_a_repository_a_commit_or_a_default_branch_there_is_no_base(tmp_path):
    (tmp_path / "folder").mkdir()
    advice = "give --base with a revision or a folder, or what differs, such as --base-env"
    with pytest.raises(UsageError, match=f"is not in a git repository; {advice}"):
        base_of(tmp_path / "folder", {})
    repository = Repository(tmp_path / "empty")
    assert "has no commit yet; commit first, or " in refusal(repository)
    repository.git("switch", "--quiet", "--orphan", "topic")
    repository.write("one.py")
    repository.commit()
    assert refusal(repository).startswith(
        f"nothing to compare: {repository.path} has no branch origin/main, origin/master, main, "
        "master that HEAD could have left; "
    )


def test_histories_without_a_common_commit_cannot_be_compared(project):
    clone = project.clone()
    clone.git("switch", "--quiet", "--orphan", "other")
    clone.write("five.py")
    clone.commit()
    assert refusal(clone).startswith("HEAD and origin/main have no common commit; give --base ")
    assert refusal(clone, {"GITHUB_BASE_REF": "main"}) == (
        "GITHUB_BASE_REF: HEAD has no common commit with origin/main; give --base with another "
        "revision"
    )


# ---- A pull request ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "variable", ["GITHUB_BASE_REF", "BUILDKITE_PULL_REQUEST_BASE_BRANCH"], ids=str
)
def test_a_pull_request_is_compared_with_where_it_left_its_target(project, variable):
    project.remote.git("branch", "release/1", project.first)
    clone = project.clone(branch="topic")
    expected = project.left, f"the merge base with origin/main ({variable})"
    assert chosen(clone, {variable: "main"}) == expected
    expected = project.first, f"the merge base with origin/release/1 ({variable})"
    assert chosen(clone, {variable: "release/1"}) == expected
    assert chosen(clone, {variable: ""})[1] == "the merge base with origin/main"


def test_a_merged_pull_request_is_compared_with_what_it_was_merged_into(project):
    clone = project.clone()
    clone.git("fetch", "--quiet", "origin", "refs/pull/7/merge")
    clone.git("checkout", "--quiet", "--detach", "FETCH_HEAD")
    rule = "the merge base with origin/main (GITHUB_BASE_REF)"
    assert chosen(clone, project.pull_request()) == (project.main, rule)


def test_two_commits_of_a_merged_pull_request_are_enough(project):
    clone = project.checked_out("refs/pull/7/merge", 2)
    rule = "what GitHub merged the pull request into (GITHUB_BASE_REF=main)"
    assert chosen(clone, project.pull_request()) == (project.main, rule)


def test_one_commit_of_a_merged_pull_request_is_not_enough(project):
    clone = project.checked_out("refs/pull/7/merge", 1)
    line = refusal(clone, project.pull_request())
    assert line == (
        "GITHUB_BASE_REF: this clone is shallow and has no parent of the merge commit of the pull "
        "request; fetch it: git fetch --deepen=1, or give actions/checkout fetch-depth: 2"
    )
    clone.git("fetch", "--quiet", "--deepen=1", "origin", "refs/pull/7/merge")
    assert chosen(clone, project.pull_request())[0] == project.main


def test_a_merge_commit_of_the_author_is_not_one_that_github_made(project):
    clone = project.checked_out("refs/pull/7/merge", 2)
    for other in ({"GITHUB_REF": "refs/heads/topic"}, {"GITHUB_SHA": project.topic}):
        assert "has no branch origin/main; fetch it: " in refusal(
            clone, project.pull_request(**other)
        )


@pytest.mark.parametrize("environ", [{"GITHUB_BASE_REF": "main"}, {}], ids=["job", "user"])
def test_a_shallow_clone_says_what_to_fetch(project, environ):
    clone = project.clone("--depth=1", branch="topic")
    line = refusal(clone, environ)
    fetch = "git fetch --unshallow origin +refs/heads/main:refs/remotes/origin/main"
    assert line.startswith(
        f"GITHUB_BASE_REF: this clone is shallow and has no branch origin/main; fetch it: {fetch}"
        if environ
        else f"nothing to compare: {clone.path} has no branch origin/main, origin/master, main, "
        f"master that HEAD could have left; fetch one: {fetch}, or give --base "
    )
    clone.git(*fetch.split()[1:])
    assert chosen(clone, environ)[0] == project.left


def test_a_shallow_clone_with_both_branches_says_what_to_fetch(project):
    clone = project.clone("--depth=1", "--no-single-branch", branch="topic")
    assert refusal(clone, {"GITHUB_BASE_REF": "main"}) == (
        "GITHUB_BASE_REF: this clone is shallow and has no common commit with origin/main; fetch "
        "it: git fetch --unshallow origin +refs/heads/main:refs/remotes/origin/main"
    )
    assert refusal(clone) == (
        "this clone is shallow and does not have the commit where HEAD left origin/main; fetch "
        "it: git fetch --unshallow origin"
    )
    clone.git("fetch", "--unshallow", "origin")
    assert chosen(clone)[0] == project.left


def test_a_shallow_clone_of_the_default_branch_needs_its_parent(project):
    clone = project.clone("--depth=1")
    assert refusal(clone, {"CI": "true"}) == (
        "this clone is shallow and does not have the parent of HEAD; fetch it: git fetch --deepen=1"
    )
    clone.git("fetch", "--deepen=1")
    assert chosen(clone, {"CI": "true"})[0] == project.left


def test_a_job_on_the_target_branch_has_nothing_of_the_pull_request(project):
    clone = project.clone()
    assert refusal(clone, {"GITHUB_BASE_REF": "main"}) == (
        "GITHUB_BASE_REF: HEAD is a commit of origin/main, so nothing of the pull request is "
        "checked out; check out the pull request, or give --base"
    )


@pytest.mark.parametrize(
    "name", ["--upload-pack=touch gone", "-q", "a b", "main^", "main@{1}", "a..b", "a\nb", "x:y"]
)
def test_a_value_that_names_no_branch_reaches_no_command(project, name):
    clone = project.clone()
    for variable in ("GITHUB_BASE_REF", "CI_DEFAULT_BRANCH"):
        assert refusal(clone, {variable: name}) == (
            f"{variable}: {name!r} is not the name of a branch; give --base"
        )
    event = {"repository": {"default_branch": name}}
    environ = {"GITHUB_EVENT_PATH": project.event(event)}
    assert "is not the name of a branch" in refusal(clone, environ)


def test_a_command_to_copy_quotes_the_name_of_a_branch(project):
    line = refusal(project.clone(), {"GITHUB_BASE_REF": "a;id"})
    refspec = "+refs/heads/a;id:refs/remotes/origin/a;id"
    assert line.endswith(f"has no branch origin/a;id; fetch it: git fetch origin '{refspec}'")


# ---- A merge queue, a push -----------------------------------------------------------------------


def test_a_merge_queue_names_its_base(project):
    clone = project.checked_out("refs/pull/7/merge", 9)
    event = {"merge_group": {"base_sha": project.left, "base_ref": "refs/heads/main"}}
    environ = {"GITHUB_EVENT_NAME": "merge_group", "GITHUB_EVENT_PATH": project.event(event)}
    rule = "the base of the merge queue (merge_group.base_sha of GITHUB_EVENT_PATH)"
    assert chosen(clone, environ) == (project.left, rule)


def test_a_push_is_compared_with_the_commit_before_it(project):
    clone = project.clone()
    rule = "the commit before the push (before of GITHUB_EVENT_PATH)"
    assert chosen(clone, project.push(project.first)) == (project.first, rule)
    clone.git("checkout", "--quiet", "--detach", "origin/topic")
    # The first push of a branch, and a forced one that has removed the commit.
    for before in (ZEROS, "1" * 40):
        assert chosen(clone, project.push(before)) == (
            project.left,
            "the merge base with origin/main",
        )


def test_a_shallow_clone_lacks_the_commit_before_a_push(project):
    clone = project.checked_out("refs/heads/main", 1)
    line = refusal(clone, project.push(project.first))
    assert line == (
        "before of GITHUB_EVENT_PATH: this clone is shallow and does not have the commit before "
        f"the push, {project.first[:7]}; fetch it: git fetch --unshallow origin {project.first}"
    )
    clone.git(*line.partition("fetch it: git ")[2].split())
    assert chosen(clone, project.push(project.first))[0] == project.first


def test_the_default_branch_of_the_event_counts_before_usual_names(project):
    project.remote.git("branch", "trunk", project.first)
    clone = project.clone(branch="topic")
    event = {"repository": {"default_branch": "trunk"}}
    environ = {"GITHUB_EVENT_NAME": "schedule", "GITHUB_EVENT_PATH": project.event(event)}
    assert chosen(clone, environ) == (project.first, "the merge base with origin/trunk")


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"GITHUB_EVENT_PATH": "/nowhere"}, r"GITHUB_EVENT_PATH: /nowhere: .*; give --base"),
        (
            {"GITHUB_EVENT_NAME": "push", "EVENT": {"before": "--all"}},
            "before of GITHUB_EVENT_PATH: '--all' is not the hash of a commit; give --base",
        ),
        (
            {"GITHUB_EVENT_NAME": "merge_group", "EVENT": {"merge_group": {"base_sha": "main"}}},
            "merge_group.base_sha of .*: 'main' is not the hash of a commit; give --base",
        ),
        ({"EVENT": "[1]"}, r"GITHUB_EVENT_PATH: .*event.json: .*; give --base"),
        (
            {"CI_MERGE_REQUEST_DIFF_BASE_SHA": "-1"},
            "CI_MERGE_REQUEST_DIFF_BASE_SHA: '-1' is not the hash of a commit; give --base",
        ),
    ],
)
def test_what_a_service_says_is_checked(project, environ, message):
    clone = project.clone()
    if "EVENT" in environ:
        event = project.event(environ["EVENT"])
        environ = {**environ, "GITHUB_EVENT_PATH": event}
        del environ["EVENT"]
    assert re.fullmatch(message, refusal(clone, environ))


# ---- GitLab --------------------------------------------------------------------------------------


def test_gitlab_names_the_base_of_a_merge_request(project):
    clone = project.clone(branch="topic")
    variable = "CI_MERGE_REQUEST_DIFF_BASE_SHA"
    before = {"CI_COMMIT_BEFORE_SHA": ZEROS}
    assert chosen(clone, {variable: project.first, **before}) == (
        project.first,
        f"the base of the merge request ({variable})",
    )
    target = {"CI_MERGE_REQUEST_TARGET_BRANCH_SHA": project.main}
    assert chosen(clone, {variable: project.first, **target})[0] == project.main
    assert chosen(clone, {"CI_COMMIT_BEFORE_SHA": project.first}) == (
        project.first,
        "the commit before the push (CI_COMMIT_BEFORE_SHA)",
    )
    assert chosen(clone, before)[0] == project.left
