"""Find the commit to compare with, by what a service says of its job and by the repository.

Without ``--base`` the first rule counts that applies: the target branch of a pull request, the base
of a merge queue, the commit before a push, and else the default branch of the remote.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnistbench.core.child import JOB_VARIABLES
from mnistbench.core.errors import RecordError, UsageError
from mnistbench.core.files import Limit, read_limited
from mnistbench.core.reading import read_text
from mnistbench.gate.copies.repositories import NoRepositoryError, git
from mnistbench.gate.copies.trees import head_of

#: Variables with the branch that a pull request is to be merged into, of GitHub and Buildkite.
_TARGETS = ("GITHUB_BASE_REF", "BUILDKITE_PULL_REQUEST_BASE_BRANCH")

#: Variables of GitLab with the commit that a merge request is compared with. The first is set if
#: the job runs on the request merged into its target, the second for every merge request.
_MERGE_REQUEST = ("CI_MERGE_REQUEST_TARGET_BRANCH_SHA", "CI_MERGE_REQUEST_DIFF_BASE_SHA")

#: Variables with the name of the default branch, of GitLab and Buildkite.
_DEFAULT_BRANCH = ("CI_DEFAULT_BRANCH", "BUILDKITE_PIPELINE_DEFAULT_BRANCH")

#: Names of default branches if nothing else is known.
_USUAL_BRANCHES = ("main", "master")

#: Variables of which one is set where a service runs a job.
_JOBS = (*JOB_VARIABLES, "CI", "JENKINS_URL")

#: GitHub's reference of a pull request that it has merged into its target for a job.
_MERGED_REQUEST = re.compile(r"refs/pull/\d+/merge", re.ASCII)

#: Events of GitHub describe at most 25 MB.
_EVENT = Limit(32 * 1024**2, "an event of GitHub", "give --base")

_WHAT_TO_GIVE = (
    "give --base with a revision or a folder, or what differs, such as --base-env NAME=VALUE"
)


@dataclass(frozen=True)
class Base:
    """A commit to compare with."""

    commit: str  # its hash
    rule: str  # why it was chosen, as reports say it

    @property
    def text(self) -> str:
        """The commit and the rule."""
        return f"{self.commit[:7]}, {self.rule}"


def base_of(here: Path, environ: Mapping[str, str]) -> Base:
    """Return the commit that the working tree around ``here`` is to be compared with.

    Raises:
        UsageError: no rule leads to a commit that the repository has.
    """
    try:
        top = Path(git(here, "rev-parse", "--show-toplevel").removesuffix("\n"))
    except NoRepositoryError:
        raise UsageError(
            f"nothing to compare: {here} is not in a git repository; {_WHAT_TO_GIVE}"
        ) from None
    clone = _Clone(top, environ)
    if not clone.head:
        raise UsageError(
            f"nothing to compare: {top} has no commit yet; commit first, or {_WHAT_TO_GIVE}"
        )
    of_event = _of_pull_request(clone) or _of_merge_queue(clone) or _before_push(clone)
    if of_event and of_event.commit == clone.head:
        raise UsageError(
            f"{of_event.rule}: is the commit that is checked out, so there is nothing to compare; "
            "check out the change, or give --base"
        )
    return of_event or _of_default_branch(clone)


@dataclass(frozen=True)
class _Clone:
    """A repository, and the variables of the job that it belongs to."""

    top: Path
    environ: Mapping[str, str]

    @functools.cached_property
    def head(self) -> str:
        """The hash of the commit that is checked out; empty if there is none yet."""
        return self.commit("HEAD")

    @functools.cached_property
    def remote(self) -> str:
        """``origin``, or else the first remote."""
        remotes = self.git("remote").split()
        return "origin" if "origin" in remotes or not remotes else remotes[0]

    @functools.cached_property
    def is_shallow(self) -> bool:
        return self.git("rev-parse", "--is-shallow-repository") == "true"

    @functools.cached_property
    def event(self) -> Mapping[str, Any]:
        """What GitHub says of the event that started the job; empty elsewhere."""
        path = self.environ.get("GITHUB_EVENT_PATH")
        if not path:
            return {}
        try:
            event: Mapping[str, Any] = read_text(read_limited(Path(path), _EVENT), dict[str, Any])
        except RecordError as error:
            raise UsageError(f"GITHUB_EVENT_PATH: {path}: {error}; give --base") from None
        return event

    def git(self, *arguments: str) -> str:
        """Return what git prints; empty if it fails."""
        return git(self.top, *arguments, check=False).strip()

    def commit(self, name: str) -> str:
        """Return the hash of a commit; empty if the repository does not have it."""
        wanted = f"{name}^{{commit}}"
        return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", wanted)

    def merge_base(self, commit: str) -> str:
        """Return where the commit that is checked out left another one; empty if unknown."""
        return self.git("merge-base", self.head, commit)

    @property
    def parents(self) -> list[str]:
        """The hashes of the parents that git has recorded, also those that a clone does not have.

        Only the raw object names the parents at which a shallow clone ends.
        """
        lines = self.git("cat-file", "commit", self.head).partition("\n\n")[0].splitlines()
        return [line.split()[1] for line in lines if line.startswith("parent ")]

    def branch(self, name: str, variable: str) -> str:
        """Return the reference of a branch of the remote, which the clone need not have.

        Raises:
            UsageError: the value of the variable is not the name of a branch.
        """
        reference = f"refs/remotes/{self.remote}/{name}"
        if name.startswith("-") or not self.git("check-ref-format", "--normalize", reference):
            raise UsageError(f"{variable}: {name!r} is not the name of a branch; give --base")
        return reference

    def hash(self, value: str, variable: str) -> str:
        """Return a hash that a service names; empty if it is one of zeros, which means none.

        Raises:
            UsageError: the value is not a hash.
        """
        if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", value):
            raise UsageError(f"{variable}: {value!r} is not the hash of a commit; give --base")
        return value if value.strip("0") else ""

    def refspec(self, name: str) -> str:
        """Return what git fetch needs to bring a branch of the remote to its usual place."""
        return f"+refs/heads/{name}:refs/remotes/{self.remote}/{name}"

    def fetch(self, *wanted: str) -> str:
        """Return the command that brings what a shallow or partial clone does not have."""
        unshallow = ["--unshallow"] if self.is_shallow else []
        return shlex.join(["git", "fetch", *unshallow, self.remote, *wanted])


# ---- The rules -----------------------------------------------------------------------------------


def _of_pull_request(clone: _Clone) -> Base | None:
    """Return the base of a pull request; None if there is none."""
    for variable in _TARGETS:
        if name := clone.environ.get(variable):
            return _left(clone, name, variable)
    for variable in _MERGE_REQUEST:
        if value := clone.environ.get(variable):
            return _named(clone, value, variable, "the base of the merge request")
    return None


def _left(clone: _Clone, name: str, variable: str) -> Base:
    """Return where a pull request left its target, or what GitHub has merged it into."""
    target = clone.commit(clone.branch(name, variable))
    shown = f"{clone.remote}/{name}"
    base = clone.merge_base(target) if target else ""
    is_merged = (
        _MERGED_REQUEST.fullmatch(clone.environ.get("GITHUB_REF", "")) is not None
        and clone.environ.get("GITHUB_SHA") == clone.head
        and len(clone.parents) == 2  # the target and the pull request
    )
    if not base and is_merged:
        if parent := clone.commit("HEAD^1"):
            return Base(parent, f"what GitHub merged the pull request into ({variable}={name})")
        raise UsageError(
            f"{variable}: this clone is shallow and has no parent of the merge commit of the pull "
            "request; fetch it: git fetch --deepen=1, or give actions/checkout fetch-depth: 2"
        )
    if not base:
        lacks = f"no common commit with {shown}" if target else f"no branch {shown}"
        if target and not clone.is_shallow:
            raise UsageError(f"{variable}: HEAD has {lacks}; give --base with another revision")
        fetch = clone.fetch(clone.refspec(name))
        is_shallow = "is shallow and " if clone.is_shallow else ""
        raise UsageError(f"{variable}: this clone {is_shallow}has {lacks}; fetch it: {fetch}")
    if base == clone.head:
        raise UsageError(
            f"{variable}: HEAD is a commit of {shown}, so nothing of the pull request is checked "
            "out; check out the pull request, or give --base"
        )
    return Base(base, f"the merge base with {shown} ({variable})")


def _of_merge_queue(clone: _Clone) -> Base | None:
    """Return what GitHub's merge queue adds to; None if there is none."""
    group = clone.event.get("merge_group")
    if clone.environ.get("GITHUB_EVENT_NAME") != "merge_group" or not isinstance(group, dict):
        return None
    variable = "merge_group.base_sha of GITHUB_EVENT_PATH"
    return _named(clone, str(group.get("base_sha")), variable, "the base of the merge queue")


def _before_push(clone: _Clone) -> Base | None:
    """Return the commit of a branch before a push; None if there is none, or it is gone.

    It is gone after a forced push, of which a clone gets the new commits only.
    """
    variable, value = "CI_COMMIT_BEFORE_SHA", clone.environ.get("CI_COMMIT_BEFORE_SHA", "")
    if clone.environ.get("GITHUB_EVENT_NAME") == "push":
        variable, value = "before of GITHUB_EVENT_PATH", str(clone.event.get("before", ""))
    if not value or not clone.hash(value, variable):
        return None
    if not clone.commit(value) and not clone.is_shallow:
        return None
    return _named(clone, value, variable, "the commit before the push")


def _named(clone: _Clone, value: str, variable: str, what: str) -> Base | None:
    """Return a commit by the hash that a service names; None if it names none."""
    wanted = clone.hash(value, variable)
    if wanted and not clone.commit(wanted):
        lacks = "is shallow and does not have" if clone.is_shallow else "does not have"
        raise UsageError(
            f"{variable}: this clone {lacks} {what}, {wanted[:7]}; fetch it: {clone.fetch(wanted)}"
        )
    return Base(wanted, f"{what} ({variable})") if wanted else None


def _of_default_branch(clone: _Clone) -> Base:
    """Return where HEAD left the default branch; on that branch its parent.

    With changes that are not committed, it is HEAD itself on that branch. A job may leave files
    behind that git does not ignore, so there its parent counts.
    """
    candidates = dict(_default_branches(clone))
    shown, tip = next(
        ((shown, commit) for shown, name in candidates.items() if (commit := clone.commit(name))),
        ("", ""),
    )
    if not tip:
        first = next(iter(candidates)).partition("/")[2]
        fetch = clone.fetch(clone.refspec(first))
        advice = f"fetch one: {fetch}, or " if clone.git("remote") else ""
        raise UsageError(
            f"nothing to compare: {clone.top} has no branch {', '.join(candidates)} that HEAD "
            f"could have left; {advice}{_WHAT_TO_GIVE}"
        )
    base = clone.merge_base(tip)
    if not base and clone.is_shallow:
        raise UsageError(
            f"this clone is shallow and does not have the commit where HEAD left {shown}; fetch "
            f"it: {clone.fetch()}"
        )
    if not base:
        raise UsageError(f"HEAD and {shown} have no common commit; {_WHAT_TO_GIVE}")
    if base != clone.head:
        return Base(base, f"the merge base with {shown}")
    is_job = any(clone.environ.get(variable) for variable in _JOBS)
    if head_of(clone.top)[1] and not is_job:
        return Base(clone.head, f"HEAD, a commit of {shown}, without your changes")
    if parent := clone.commit("HEAD^1"):
        return Base(parent, f"the parent of HEAD, a commit of {shown}")
    if clone.parents:
        raise UsageError(
            "this clone is shallow and does not have the parent of HEAD; fetch it: git fetch "
            "--deepen=1"
        )
    raise UsageError(
        f"nothing to compare: HEAD is the first commit and has no changes; {_WHAT_TO_GIVE}"
    )


def _default_branches(clone: _Clone) -> Iterator[tuple[str, str]]:
    """Yield what may be the default branch, as shown and as git names it, the surest first."""
    of_remote = [*_said_default(clone), *_USUAL_BRANCHES]
    if name := clone.git("symbolic-ref", "--quiet", f"refs/remotes/{clone.remote}/HEAD"):
        of_remote.insert(-len(_USUAL_BRANCHES), name.removeprefix(f"refs/remotes/{clone.remote}/"))
    for name in of_remote:
        yield f"{clone.remote}/{name}", f"refs/remotes/{clone.remote}/{name}"
    for name in _USUAL_BRANCHES:
        yield name, f"refs/heads/{name}"


def _said_default(clone: _Clone) -> Iterator[str]:
    """Yield the default branches that a service names."""
    repository = clone.event.get("repository")
    said = {variable: clone.environ.get(variable) for variable in _DEFAULT_BRANCH}
    if isinstance(repository, dict):
        said["repository.default_branch of GITHUB_EVENT_PATH"] = repository.get("default_branch")
    for variable, name in said.items():
        if name:
            clone.branch(str(name), variable)
            yield str(name)
