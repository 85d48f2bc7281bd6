"""action.yml.

Its steps are run with bash, with a stand-in for Python and for gh, and docs/ci.md shows how to use
it.

Tests of actionlint are skipped without it; `tox -e actions` installs it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from mnistbench import cli
from mnistbench.core.child import JOB_VARIABLES
from mnistbench.core.options import seconds

REPOSITORY = Path(__file__).parent.parent
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
INPUTS = ACTION["inputs"]
STEPS = ACTION["runs"]["steps"]
PAGE = (REPOSITORY / "docs" / "ci.md").read_text(encoding="utf-8")
WORKFLOW, APART, SHARDS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

EXIT_PASSED = 0
EXIT_REGRESSED = 1
EXIT_INCONCLUSIVE = 2

#: What the gate prints while it measures; the exit code and the report are those of the test.
PYTHON = r"""#!/usr/bin/env bash
if [ "$1 $2 $3" = "-P -c import mnistbench" ]; then exit "$FAKE_MISSING"; fi
if [ "$1 $2 $3" = "-P -m pip" ]; then printf '%s\n' "$@" > "$FAKE/pip"; exit 0; fi
if [ "$1 $2 $3" != "-P -m mnistbench" ]; then exec "$FAKE_PYTHON" "$@"; fi
if [ "$4" = "judge" ] && [ -z "$GITHUB_STEP_SUMMARY" ]; then
  printf '%s\0' "${@:4}" > "$FAKE/page"
  if [ "$FAKE_PAGE" = 0 ]; then echo "mnistbench: no page" >&2; exit 2; fi
  for word in "$@"; do case $word in --output=*) echo page > "${word#--output=}" ;; esac; done
  exit 0
fi
printf '%s\0' "${@:4}" > "$FAKE/gate"
echo "loading both sides"
echo "mnistbench: $FAKE_ERROR" >&2
for word in "$@"; do
  case $word in
    --output=*) output=${word#--output=} ;;
    --storage=*)
      mkdir -p "${word#--storage=}/gate"
      echo raw > "${word#--storage=}/gate/$FAKE_NAME" ;;
  esac
done
if [ -n "$FAKE_REPORT" ]; then cat "$FAKE_REPORT" > "$output"; fi
exit "$FAKE_CODE"
"""

GH = r"""#!/usr/bin/env bash
printf '%s\0' "$@" > "$FAKE/gh"
for word in "$@"; do body=$word; done
cp "$body" "$FAKE/body"
echo "$GH_REPO $GH_TOKEN" > "$FAKE/gh_environment"
exit "$FAKE_GH_CODE"
"""

#: Address of the artifact that is uploaded, and the line of the comment with it.
ARTIFACT = "https://github.example/owner/project/actions/runs/34/artifacts/56"
LINK = f"\n[All cases as a page: gate.html in this artifact]({ARTIFACT})\n"

REPORT = "### mnistbench: regressed: 1 operation (step: aten::mm, +9.0 %)\n\n- more\n"
ERROR = "--base 'origin/main...': no such commit"


class Ran(NamedTuple):
    """What is left after the steps of a job."""

    code: int  # of the step that fails first; 0 if none does
    log: str
    gate: list[str] | None  # arguments; None if it was not called
    page: list[str] | None  # arguments of the command that writes the page
    pip: list[str] | None
    gh: list[str] | None
    body: str | None  # of the comment
    summary: str
    outputs: dict[str, str]  # of the gate's step
    upload: dict[str, str] | None  # what the last step is given


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Run the steps of the action as a job of GitHub would."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name, text in (("python", PYTHON), ("gh", GH)):
        (fakes / name).write_text(text)
        (fakes / name).chmod(0o755)
    for name in [
        name for name in os.environ if name.startswith(("GITHUB_", "RUNNER_", "INPUT_", "GH_"))
    ]:
        monkeypatch.delenv(name)
    (tmp_path / "temp").mkdir()

    def run(
        *,
        event="pull_request",
        code=EXIT_PASSED,
        report=REPORT,
        gh_code=0,
        missing=False,
        name="1.jsonl.gz",
        page=True,
        artifact=ARTIFACT,
        **inputs,
    ):
        assert inputs.keys() <= INPUTS.keys()
        seen = tmp_path / "seen"
        shutil.rmtree(seen, ignore_errors=True)
        seen.mkdir()
        (seen / "report").write_text(report or "")
        values = (
            {name: str(declared["default"]) for name, declared in INPUTS.items()}
            | {"token": "a token"}
            | inputs
        )
        contexts = {f"inputs.{name}": value for name, value in values.items()}
        contexts |= {
            "github.event_name": event,
            "github.repository": "owner/project",
            "github.event.pull_request.number": "12" if event == "pull_request" else "",
        }
        variables = {
            **os.environ,
            "PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": "/the action",
            "GITHUB_BASE_REF": "main" if event == "pull_request" else "",
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "owner/project",
            "GITHUB_RUN_ID": "34",
            "GITHUB_OUTPUT": str(seen / "output"),
            "GITHUB_STEP_SUMMARY": str(seen / "summary"),
            "RUNNER_TEMP": str(tmp_path / "temp"),
            "FAKE": str(seen),
            "FAKE_PYTHON": sys.executable,
            "FAKE_MISSING": str(int(missing)),
            "FAKE_CODE": str(code),
            "FAKE_ERROR": ERROR,
            "FAKE_REPORT": str(seen / "report") if report else "",
            "FAKE_GH_CODE": str(gh_code),
            "FAKE_NAME": name,
            "FAKE_PAGE": str(int(page)),
            "GITHUB_JOB": "gate",
            "GITHUB_EVENT_NAME": event,
        }
        return _run(contexts, variables, seen, artifact)

    return run


def _run(contexts, variables, seen, artifact):
    failed = 0
    log = ""
    outputs = {}
    upload = None
    for step in STEPS:
        if not _runs(step, contexts, failed):
            continue
        if "uses" in step:
            upload = {name: _filled(value, contexts) for name, value in step["with"].items()}
            contexts[f"steps.{step['id']}.outputs.artifact-url"] = artifact
            continue
        own = {name: _filled(value, contexts) for name, value in step.get("env", {}).items()}
        script = seen / "script.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            # What GitHub runs for `shell: bash`.
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            env={**variables, **own},
            cwd=seen,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        failed = failed or done.returncode
        log = log + done.stdout
        if step.get("id") == "gate" and (seen / "output").exists():
            outputs = dict(
                line.split("=", 1) for line in (seen / "output").read_text().splitlines()
            )
            contexts |= {f"steps.gate.outputs.{name}": value for name, value in outputs.items()}

    def text(name):
        return (seen / name).read_text() if (seen / name).exists() else None

    words = {name: (text(name) or "").split("\0")[:-1] or None for name in ("gate", "page", "gh")}
    pip = (text("pip") or "").splitlines() or None
    return Ran(
        failed,
        log,
        words["gate"],
        words["page"],
        pip,
        words["gh"],
        text("body"),
        text("summary") or "",
        outputs,
        upload,
    )


def _filled(value, contexts):
    return re.sub(r"\$\{\{ ([a-z_.-]+) \}\}", lambda name: contexts.get(name[1], ""), str(value))


#: A condition of a step, which GitHub alone can evaluate -> what it means, by hand. All of them
#: hold after a failure, too.
CONDITIONS = {
    "${{ !cancelled() && steps.gate.outputs.folder != '' }}": lambda contexts: (
        contexts.get("steps.gate.outputs.folder", "") != ""
    ),
    "${{ !cancelled() && inputs.comment == 'true' && inputs.shard == '' && "
    "github.event_name == 'pull_request' && steps.gate.outputs.report != '' }}": lambda contexts: (
        contexts["inputs.comment"] == "true"
        and contexts["inputs.shard"] == ""
        and contexts["github.event_name"] == "pull_request"
        and contexts.get("steps.gate.outputs.report", "") != ""
    ),
}


def _runs(step, contexts, failed):
    """Whether a step runs; one without a condition runs unless another one has failed."""
    return CONDITIONS[step["if"]](contexts) if "if" in step else not failed


# ---- Steps ---------------------------------------------------------------------------------------


def test_a_gate_that_passes(job, tmp_path):
    ran = job(paths="bench/test_step.py")
    assert ran.code == EXIT_PASSED
    report = ran.outputs["report"]
    folder = ran.outputs["folder"]
    assert ran.gate == [
        "gate",
        "--base=origin/main...",
        "--budget=7m",
        "--inconclusive=fail",
        "--format=markdown",
        f"--output={report}",
        f"--storage={folder}",
        "--",
        "bench/test_step.py",
    ]
    assert Path(report).read_text() == REPORT
    assert REPORT in ran.log
    assert (ran.pip, ran.summary) == (None, "")  # the gate writes to the summary itself
    assert ran.gh == [
        "pr",
        "comment",
        "12",
        "--edit-last",
        "--create-if-none",
        "--body-file",
        f"{report}.comment",
    ]
    assert ran.body == REPORT + LINK
    assert ran.page == [
        "judge",
        f"{folder}/gate/1.jsonl.gz",
        "--format=html",
        f"--output={folder}/gate.html",
    ]
    assert (tmp_path / "seen" / "gh_environment").read_text() == "owner/project a token\n"
    assert ran.upload == {
        "name": ran.outputs["artifact"],
        "path": folder,
        "if-no-files-found": "ignore",
        "overwrite": "True",
    }
    assert {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.*")} == {
        "report.md",
        "report.md.comment",
        "gate.html",
        "log.txt",
        "gate/1.jsonl.gz",
    }


def test_the_arguments_of_the_gate_are_those_that_the_command_takes(job):
    words = job().gate
    parsed = cli.parser("gate").parse_args(words[: words.index("--")])
    assert (parsed.base, parsed.format, parsed.inconclusive) == (
        "origin/main...",
        "markdown",
        "fail",
    )
    assert seconds(parsed.budget_s) == 420


@pytest.mark.parametrize("code", [EXIT_REGRESSED, EXIT_INCONCLUSIVE])
def test_a_gate_that_fails_is_the_exit_code_and_is_reported_too(job, code):
    ran = job(code=code)
    assert (ran.code, ran.body, ran.summary) == (code, REPORT + LINK, "")
    assert ran.upload["path"] == ran.outputs["folder"]


def test_the_comment_has_no_link_without_a_page_or_an_artifact(job):
    ran = job(page=False, code=EXIT_REGRESSED)
    assert (ran.code, ran.body) == (EXIT_REGRESSED, REPORT)
    assert "mnistbench: no page" in ran.log
    assert job(artifact="").body == REPORT


def test_an_error_replaces_the_report_of_an_earlier_step_in_comment_and_summary(
    job,
):
    first = job(code=EXIT_REGRESSED)
    second = job(code=EXIT_INCONCLUSIVE, report=None)
    assert second.code == EXIT_INCONCLUSIVE
    assert second.summary == (
        "### mnistbench: the gate could not measure\n\n    loading both sides\n    mnistbench: "
        f"{ERROR}\n"
    )
    assert second.body == second.summary + LINK
    assert second.upload["path"] == second.outputs["folder"]
    # Two artifacts of one name are an error.
    assert first.outputs["artifact"] != second.outputs["artifact"]
    assert Path(first.outputs["report"]).read_text() == REPORT


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        ("", []),
        (
            "bench -k 'b16 and not b1' --bench-model=convnet",
            ["bench", "-k", "b16 and not b1", "--bench-model=convnet"],
        ),
        ("'a folder/test_x.py::test_y[a b]' -v", ["a folder/test_x.py::test_y[a b]", "-v"]),
        ("a\nb  c\n", ["a", "b", "c"]),
        ("-k '' *", ["-k", "", "*"]),
        (
            '"$(touch hacked)" `touch hacked` ; touch hacked',
            ["$(touch hacked)", "`touch", "hacked`", ";", "touch", "hacked"],
        ),
        (r'"a \" b" \'c', ['a " b', "'c"]),
        ("größe", ["größe"]),
    ],
)
def test_paths_are_split_as_a_shell_does_and_nothing_in_them_is_run(job, tmp_path, paths, words):
    ran = job(paths=paths)
    assert ran.gate[ran.gate.index("--") + 1 :] == words
    assert (ran.code, list(tmp_path.rglob("hacked"))) == (EXIT_PASSED, [])


def test_a_quote_that_is_not_closed_is_not_taken_for_a_regression(job):
    ran = job(paths="-k 'b16")
    assert (ran.code, ran.gate, ran.gh, ran.upload) == (EXIT_INCONCLUSIVE, None, None, None)
    assert "::error title=mnistbench::paths: a quote is not closed\n" in ran.log


@pytest.mark.parametrize("name", ["base", "budget", "inconclusive", "shard"])
def test_an_input_is_one_argument_whatever_it_is(job, tmp_path, name):
    ran = job(**{name: "--x 'y'; $(touch hacked)"})
    assert f"--{name}=--x 'y'; $(touch hacked)" in ran.gate
    assert list(tmp_path.rglob("hacked")) == []


def test_a_push_needs_a_base_and_has_no_comment(job):
    ran = job(event="push")
    assert (ran.code, ran.gate, ran.upload) == (EXIT_INCONCLUSIVE, None, None)
    assert (
        "::error title=mnistbench::base: is empty, and this is not a pull request; give a commit"
        in ran.log
    )
    ran = job(event="push", base="HEAD^", code=EXIT_REGRESSED)
    assert (ran.code, ran.gate[1], ran.gh) == (EXIT_REGRESSED, "--base=HEAD^", None)
    assert ran.upload["path"] == ran.outputs["folder"]


def test_the_code_of_a_fork_is_not_run_with_secrets(job, tmp_path):
    ran = job(event="pull_request_target", base="HEAD^")
    assert (ran.code, ran.gate, ran.gh) == (EXIT_INCONCLUSIVE, None, None)
    assert "::error title=mnistbench::pull_request_target: gives the code of" in ran.log
    (tmp_path / "raw.jsonl.gz").touch()
    judged = job(event="pull_request_target", judge=f"{tmp_path}/*.gz")
    assert (judged.code, judged.gate[0]) == (EXIT_PASSED, "judge")


def test_the_step_with_the_token_runs_no_file_that_measured_code_has_named(
    job, tmp_path, monkeypatch
):
    (tmp_path / "named").write_text('[ -z "$GH_TOKEN" ] || touch "$FAKE/stolen"\n')
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "named"))  # as GitHub does after the step
    assert job().body == REPORT + LINK
    assert list(tmp_path.rglob("stolen")) == []


@pytest.mark.parametrize("code", [EXIT_PASSED, EXIT_REGRESSED])
def test_a_token_that_cannot_write_does_not_fail_the_job(job, code):
    ran = job(gh_code=1, code=code)
    assert (ran.code, ran.gh[:3]) == (code, ["pr", "comment", "12"])
    assert "::notice title=mnistbench::There is no comment" in ran.log
    assert "::notice" not in job().log


def test_no_comment_if_it_is_not_wanted(job):
    ran = job(comment="false", code=EXIT_REGRESSED)
    assert (ran.code, ran.gh) == (EXIT_REGRESSED, None)


def test_a_report_that_is_too_long_for_a_comment_has_a_link(job):
    long = REPORT + "- x\n" * 20_000
    ran = job(report=long)
    assert Path(ran.outputs["report"]).read_text() == long
    assert ran.body.startswith(REPORT.splitlines()[0])
    assert "[the summary](https://github.example/owner/project/actions/runs/34)" in ran.body
    assert ran.body.endswith(LINK)
    assert len(ran.body) < 65_536


@pytest.mark.parametrize("code", [EXIT_PASSED, EXIT_REGRESSED, EXIT_INCONCLUSIVE])
def test_a_shard_that_has_samples_passes_whatever_they_show(job, code):
    ran = job(code=code, shard="3/8", name="shard-3-of-8_1.jsonl.gz")
    assert (ran.code, ran.gh, ran.page) == (EXIT_PASSED, None, None)
    assert "--shard=3/8" in ran.gate
    assert ran.upload["name"] == "mnistbench-gate-shard-3-of-8"
    assert REPORT in ran.log


def test_a_shard_without_samples_fails(job):
    ran = job(code=EXIT_INCONCLUSIVE, shard="3/8", report=None)
    assert (ran.code, ran.gh) == (EXIT_INCONCLUSIVE, None)
    assert ran.upload["name"] == "mnistbench-gate-shard-3-of-8"


@pytest.mark.parametrize("code", [EXIT_PASSED, EXIT_REGRESSED, EXIT_INCONCLUSIVE])
@pytest.mark.parametrize("event", ["pull_request", "push"])
def test_the_samples_of_all_shards_are_judged_as_one_gate(job, tmp_path, code, event):
    folder = tmp_path / "all shards"
    folder.mkdir()
    files = [folder / f"shard-{number}-of-2_1.jsonl.gz" for number in (1, 2)]
    for file in files:
        file.touch()
    ran = job(event=event, code=code, judge=f"{folder}/shard-*", paths="bench")
    assert ran.code == code
    assert ran.gate == [
        "judge",
        *map(str, files),
        "--inconclusive=fail",
        "--format=markdown",
        f"--output={ran.outputs['report']}",
    ]
    assert ran.page == [
        "judge",
        *map(str, files),
        "--format=html",
        f"--output={ran.outputs['folder']}/gate.html",
    ]
    assert ran.body == (REPORT + LINK if event == "pull_request" else None)


def test_no_samples_of_shards_are_an_error_with_the_pattern(job, tmp_path):
    ran = job(judge=f"{tmp_path}/$(touch hacked)/shard-*")
    assert (ran.code, ran.gate, ran.gh) == (EXIT_INCONCLUSIVE, None, None)
    assert "::error title=mnistbench::judge: no file is named " in ran.log
    assert list(tmp_path.rglob("hacked")) == []


@pytest.mark.parametrize("missing", [False, True])
def test_it_is_installed_from_the_folder_of_the_action_if_it_is_missing(job, missing):
    assert job(missing=missing).pip == (
        ["-P", "-m", "pip", "install", "/the action"] if missing else None
    )


# ---- The file ------------------------------------------------------------------------------------


def test_no_step_imports_a_module_of_the_checkout():
    calls = [
        call
        for step in STEPS
        for call in re.findall(r'"\$INPUT_PYTHON" +(\S+)', step.get("run", ""))
    ]
    assert calls == ["-P"] * 5


def test_no_script_has_an_expression():
    # What it stands for would be run: a branch may have the name $(...).
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) == 3
    assert not any("${{" in script for script in scripts)


def test_every_input_is_used_and_described():
    text = json.dumps(STEPS)
    for name, declared in INPUTS.items():
        assert f"inputs.{name} " in text, name
        assert declared["description"], name
        assert "default" in declared, name


def test_the_source_distribution_has_the_action():
    assert '"/action.yml"' in (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")


# ---- The page on continuous integration ----------------------------------------------------------


def test_the_page_lists_the_inputs():
    rows = dict(re.findall(r"^\| `([a-z]+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert list(rows) == list(INPUTS)
    shown = {
        name: default.strip("`")
        for name, default in rows.items()
        if name in ("budget", "inconclusive", "comment", "python")
    }
    assert shown == {name: INPUTS[name]["default"] for name in shown}


@pytest.mark.versions
def test_the_workflow_is_short_has_the_base_commit_and_may_comment():
    assert len(WORKFLOW.splitlines()) <= 15
    workflow = yaml.safe_load(WORKFLOW)
    assert workflow["permissions"]["pull-requests"] == "write"
    checkout, *_, action = workflow["jobs"]["gate"]["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    assert action["uses"] == "OWNER/mnistbench@v1"
    assert action["with"].keys() <= INPUTS.keys()


@pytest.mark.parametrize("workflow", [WORKFLOW, APART, SHARDS])
def test_no_workflow_gives_measured_code_more_than_it_needs(workflow):
    workflow = yaml.safe_load(workflow)
    assert workflow[True] == "pull_request"  # the key "on"
    for job in workflow["jobs"].values():
        permissions = job.get("permissions", workflow["permissions"])
        checkouts = [step for step in job["steps"] if "checkout" in step.get("uses", "")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)
        if len(workflow["jobs"]) > 1 and checkouts:
            assert permissions == {"contents": "read"}


def test_the_job_that_comments_judges_what_the_other_one_has_measured():
    gate, comment = yaml.safe_load(APART)["jobs"].values()
    *_, action = gate["steps"]
    assert action["with"]["comment"] == "false"
    assert gate["outputs"]["artifact"] == f"${{{{ steps.{action['id']}.outputs.artifact }}}}"
    assert (comment["needs"], comment["if"]) == ("gate", "${{ !cancelled() }}")
    assert comment["permissions"]["pull-requests"] == "write"
    *_, download, judge = comment["steps"]
    assert download["with"]["name"] == "${{ needs.gate.outputs.artifact }}"
    assert judge["with"] == {"judge": f"{download['with']['path']}/gate/*.jsonl.gz"}


def test_the_page_lists_the_variables_that_are_not_passed_on():
    rows = re.findall(r"^\| .* \| `([A-Z_]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    shown = {service: tuple(re.findall(r"`([^`]+)`", names)) for service, names in rows}
    assert shown == JOB_VARIABLES


@pytest.fixture
def lint(tmp_path):
    """Run actionlint over a workflow in a repository with this action; return its complaints."""
    actionlint = shutil.which("actionlint")
    if not actionlint:
        pytest.skip("no actionlint; tox -e actions")
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)

    def run(workflow, action=None):
        (tmp_path / "action.yml").write_text(
            action or (REPOSITORY / "action.yml").read_text(encoding="utf-8")
        )
        (folder / "operations.yml").write_text(workflow)
        done = subprocess.run(
            [actionlint, "-no-color"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) is (done.stdout == "")
        return done.stdout + done.stderr

    return run


def test_the_workflow_of_shards_measures_all_of_them_and_judges_them_in_any_case():
    gate, verdict = yaml.safe_load(SHARDS)["jobs"].values()
    numbers = gate["strategy"]["matrix"]["shard"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert gate["strategy"]["fail-fast"] is False
    checkout, *_, action = gate["steps"]
    assert checkout["with"]["fetch-depth"] == 0
    assert action["with"]["shard"] == f"${{{{ matrix.shard }}}}/{len(numbers)}"
    assert (verdict["needs"], verdict["if"]) == ("gate", "${{ !cancelled() }}")
    *_, download, judge = verdict["steps"]
    assert download["with"]["pattern"] == "mnistbench-gate-shard-*"
    assert judge["with"]["judge"] == f"{download['with']['path']}/gate/shard-*.jsonl.gz"
    assert {*action["with"], *judge["with"]} <= INPUTS.keys()


def test_actionlint_accepts_the_workflow(lint):
    assert lint(WORKFLOW) == lint(APART) == lint(SHARDS) == ""
    assert "fetch-dept" in lint(WORKFLOW.replace("fetch-depth", "fetch-dept"))


def test_actionlint_accepts_the_action_and_all_its_inputs(lint):
    all_inputs = ", ".join(f"{name}: x" for name in INPUTS)
    local = WORKFLOW.replace("OWNER/mnistbench@v1", "./").replace(
        "{paths: bench/test_step.py}", f"{{{all_inputs}}}"
    )
    assert local.count("./\n") == 1
    assert lint(local) == ""
    assert 'input "path" is not defined' in lint(local.replace("paths:", "path:"))
    text = (REPOSITORY / "action.yml").read_text(encoding="utf-8")
    assert 'invalid runner name "node16"' in lint(
        local, text.replace("using: composite", "using: node16")
    )


def test_actionlint_accepts_the_steps_as_those_of_a_workflow(lint):
    # It does not check the steps of an action. Those of a workflow that is called with the same
    # inputs have the same contexts.
    called = {
        name: {"type": "string", "default": str(declared["default"])}
        for name, declared in INPUTS.items()
        if name != "token"
    }
    called["token"] = {"type": "string"}

    def workflow(steps):
        jobs = {"gate": {"runs-on": "ubuntu-24.04", "steps": steps}}
        return yaml.safe_dump(
            {"name": "steps", "on": {"workflow_call": {"inputs": called}}, "jobs": jobs},
            sort_keys=False,
        )

    assert lint(workflow(STEPS)) == ""
    install, gate, upload, comment = STEPS
    for change, complaint in (
        (
            [
                install,
                gate,
                upload,
                {**comment, "env": {"REPORT": "${{ steps.gat.outputs.report }}"}},
            ],
            '"gat" is not defined',
        ),
        (
            [install, gate, {**upload, "with": {"title": "x"}}, comment],
            'input "title" is not defined',
        ),
        (
            [install, {**gate, "run": "echo ${{ github.event.pull_request.title }}"}],
            "potentially untrusted",
        ),
    ):
        assert complaint in lint(workflow(change))
