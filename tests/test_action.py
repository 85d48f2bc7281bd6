"""action.yml: its scripts run with bash, with a stand-in for the gate and for gh.

The workflows of docs/ci.md and examples/ are checked against it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from mnistbench import cli
from mnistbench.core.child import JOB_VARIABLES

REPOSITORY = Path(__file__).parent.parent
EVENTS = REPOSITORY / "tests" / "data" / "github_events"
ACTION = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
INPUTS = ACTION["inputs"]
INSTALL, GATE, UPLOAD, COMMENT = ACTION["runs"]["steps"]
PAGE = (REPOSITORY / "docs" / "ci.md").read_text(encoding="utf-8")

EXIT_PASSED = 0
EXIT_REGRESSED = 1
EXIT_INCONCLUSIVE = 2

REPORT = "### mnistbench: regressed: 1 case (test_a.py::test_a +9.0 %)\n\n- more\n"
OUTPUTS = 'verdict=regressed\nregressed=["test_a.py::test_a"]\nfound=true\n'
ERROR = "HEAD has no parent in this clone; fetch more commits"


def bash(step, variables, folder):
    """Run the script of a step as GitHub does for `shell: bash`."""
    script = folder / "script.sh"
    script.write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
        env=variables,
        cwd=folder / "checkout",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def words_of(file):
    return file.read_text().split("\0")[:-1] if file.exists() else None


def outputs_of(file):
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A runner: a checkout, a folder for temporary files, programs on PATH."""
    for name in [
        name
        for name in os.environ
        if name.startswith(("GITHUB_", "RUNNER_", "INPUT_", "GH_", "VIRTUAL_ENV", "CONDA_", "UV_"))
    ]:
        monkeypatch.delenv(name)
    (tmp_path / "checkout").mkdir()
    (tmp_path / "temp" / "mnistbench-tools").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SEEN", str(tmp_path))
    for name, value in (
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_ACTION_PATH", "/the action"),
        ("GITHUB_WORKSPACE", str(tmp_path / "checkout")),
        ("GITHUB_WORKFLOW", "benchmarks"),
        ("GITHUB_JOB", "gate"),
        ("GITHUB_SERVER_URL", "https://github.example"),
        ("GITHUB_REPOSITORY", "owner/project"),
        ("GITHUB_RUN_ID", "34"),
        ("GITHUB_OUTPUT", str(tmp_path / "outputs")),
        ("GITHUB_STEP_SUMMARY", str(tmp_path / "summary")),
        ("RUNNER_TEMP", str(tmp_path / "temp")),
    ):
        monkeypatch.setenv(name, value)
    return tmp_path


# ---- Install -------------------------------------------------------------------------------------

#: Stand-ins that note how they are called, and make what the later ones need.
UV = """#!/bin/sh
echo "uv $*" >> "$SEEN/calls"; pwd >> "$SEEN/folders"; env > "$SEEN/environment"
if [ "$1" = venv ]; then mkdir -p gate/bin; fi
if [ "$1" = pip ]; then touch gate/bin/mnistbench; chmod +x gate/bin/mnistbench; fi
"""
SYSTEM_PYTHON = """#!/bin/sh
echo "python3 $*" >> "$SEEN/calls"
mkdir -p uv/bin
printf '#!/bin/sh\\necho "pip $*" >> "$SEEN/calls"; cp "$SEEN/uv" uv/bin/uv\\n' > uv/bin/python
chmod +x uv/bin/python
"""
TO_INSTALL = [
    "uv venv --quiet --python >=3.11 gate",
    "uv pip install --quiet --python gate/bin/python /the action",
]


def install(folder, **more):
    """Run the step with no other programs on PATH than these; return its code, calls and log."""
    for name in ("mkdir", "env", "touch", "chmod", "cp", "bash", "sh"):
        if not (folder / "bin" / name).exists():
            (folder / "bin").mkdir(exist_ok=True)
            (folder / "bin" / name).symlink_to(shutil.which(name))
    done = bash(INSTALL, {**os.environ, "PATH": str(folder / "bin"), **more}, folder)
    calls = folder / "calls"
    return done.returncode, calls.read_text().splitlines() if calls.exists() else [], done.stdout


def test_it_is_installed_once_beside_the_project_with_uv(folder):
    program(folder / "bin" / "uv", UV)
    variables = {"UV_SYSTEM_PYTHON": "1", "VIRTUAL_ENV": "/project/.venv", "PYTHONPATH": "src"}
    code, calls, _ = install(folder, **variables)
    tools = folder / "temp" / "mnistbench-tools"
    assert (code, calls) == (EXIT_PASSED, TO_INSTALL)
    assert outputs_of(folder / "outputs") == {"python": f"{tools}/gate/bin/python"}
    assert set((folder / "folders").read_text().splitlines()) == {str(tools)}
    environment = outputs_of(folder / "environment")
    assert not {*variables} & {*environment}, "they are those of the project"
    assert install(folder)[:2] == (EXIT_PASSED, TO_INSTALL), "an earlier step has installed it"


def test_without_uv_it_gets_one_in_an_environment_of_its_own(folder):
    program(folder / "uv", UV)
    program(folder / "bin" / "python3", SYSTEM_PYTHON)
    code, calls, _ = install(folder)
    assert code == EXIT_PASSED
    assert calls == ["python3 -m venv uv", "pip -m pip install --quiet uv", *TO_INSTALL]


@pytest.mark.parametrize("python", [None, "#!/bin/sh\nexit 1\n"])
def test_without_uv_and_pip_the_error_says_what_to_install(folder, python):
    if python:
        program(folder / "bin" / "python3", python)
    code, _, log = install(folder)
    assert code == EXIT_INCONCLUSIVE
    assert "::error title=mnistbench::python: there is no uv, and " in log
    assert "install uv before this step" in log


# ---- Measure -------------------------------------------------------------------------------------

#: The interpreter of the gate. It reads the arguments of the step, and stands for mnistbench.
GATE_PYTHON = r"""#!/usr/bin/env bash
if [ "$1 $2 $3" != "-P -m mnistbench" ]; then exec "$REAL_PYTHON" "$@"; fi
printf '%s\0' "${@:4}" > "$SEEN/gate"
env > "$SEEN/environment"
pwd > "$SEEN/folder"
echo "loading both sides"
if [ -n "$FAKE_ERROR" ]; then echo "mnistbench: $FAKE_ERROR" >&2; exit 2; fi
for word in "$@"; do
  case $word in
    --output=*) echo page > "${word#--output=}" ;;
    --storage=*) echo raw > "${word#--storage=}/gate/$FAKE_NAME" ;;
  esac
done
printf '%s' "$FAKE_REPORT" >> "$GITHUB_STEP_SUMMARY"
printf '%s' "$FAKE_OUTPUTS" >> "$GITHUB_OUTPUT"
exit "$FAKE_CODE"
"""


class Ran(NamedTuple):
    """What the step that measures leaves."""

    code: int
    log: str
    gate: list[str] | None  # arguments of mnistbench; None if it was not called
    outputs: dict[str, str]
    summary: str
    environment: dict[str, str]  # of mnistbench


@pytest.fixture
def measure(folder):
    """Run the step that measures; keywords are inputs, or what the gate does."""
    prefix = folder / "python-of-the-job"
    program(prefix / "bin" / "python", f"#!/bin/sh\necho {prefix}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(prefix / "bin" / "python")
    program(folder / "gate-python", GATE_PYTHON)

    def run(
        *,
        event="pull_request",
        code=EXIT_PASSED,
        report=REPORT,
        outputs=OUTPUTS,
        error="",
        name="1.jsonl.gz",
        variables=None,
        **inputs,
    ):
        for left in ("gate", "outputs", "summary", "environment"):
            (folder / left).unlink(missing_ok=True)
        (folder / "outputs").touch()
        shutil.rmtree(folder / "temp" / "mnistbench-tools")
        (folder / "temp" / "mnistbench-tools").mkdir()
        values = dict.fromkeys(INPUTS, "") | inputs
        bound = {
            variable: values[expression.removeprefix("${{ inputs.").removesuffix(" }}")]
            for variable, expression in GATE["env"].items()
            if "inputs." in expression
        }
        done = bash(
            GATE,
            {
                **os.environ,
                **bound,
                "GATE_PYTHON": str(folder / "gate-python"),
                "REAL_PYTHON": sys.executable,
                "GITHUB_EVENT_NAME": event.removesuffix("_of_fork"),
                "GITHUB_EVENT_PATH": str(EVENTS / f"{event}.json"),
                "FAKE_CODE": str(code),
                "FAKE_REPORT": report,
                "FAKE_OUTPUTS": outputs,
                "FAKE_ERROR": error,
                "FAKE_NAME": name,
                **(variables or {}),
            },
            folder,
        )
        environment = folder / "environment"
        summary = folder / "summary"
        return Ran(
            done.returncode,
            done.stdout,
            words_of(folder / "gate"),
            outputs_of(folder / "outputs"),
            summary.read_text() if summary.exists() else "",
            dict(re.findall(r"^(\w+)=(.*)$", environment.read_text(), re.MULTILINE))
            if environment.exists()
            else {},
        )

    return run


def files_in(ran):
    folder = Path(ran.outputs["folder"])
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}


def test_the_gate_gets_a_folder_a_page_and_defaults_and_finds_the_rest_itself(measure, folder):
    ran = measure(code=EXIT_REGRESSED)
    out = ran.outputs
    assert ran.gate == [
        "gate",
        f"--storage={out['folder']}",
        "--format=html",
        f"--output={out['folder']}/gate.html",
        "--inconclusive=warn",
        "--budget=7m",
    ]
    assert ran.code == EXIT_REGRESSED
    assert out == {
        "folder": out["folder"],
        "report": f"{out['folder']}/report.md",
        "artifact": "mnistbench-gate",
        "verdict": "regressed",
        "regressed": '["test_a.py::test_a"]',
        "found": "true",
        "exit-code": "1",
    }
    assert Path(out["report"]).read_text() == ran.summary == REPORT
    assert REPORT in ran.log
    assert files_in(ran) == {"report.md", "gate.html", "log.txt", "found.txt", "gate/1.jsonl.gz"}
    assert (folder / "folder").read_text() == f"{folder / 'checkout'}\n"


@pytest.mark.parametrize(
    "event", ["pull_request", "pull_request_of_fork", "merge_group", "push", "schedule"]
)
def test_it_names_no_base_after_any_event_because_the_gate_reads_the_event(measure, event):
    ran = measure(event=event)
    assert ran.code == EXIT_PASSED
    assert not [word for word in ran.gate if word.startswith("--base")]
    assert ran.environment["GITHUB_EVENT_PATH"] == str(EVENTS / f"{event}.json")


@pytest.mark.parametrize(
    ("code", "outputs", "verdict", "is_found"),
    [
        (0, "verdict=passed\nregressed=[]\nfound=false\n", "passed", False),
        (0, "verdict=passed\nregressed=[]\nfound=true\n", "passed", True),
        (0, "verdict=inconclusive\nregressed=[]\nfound=false\n", "inconclusive", False),
        (2, "verdict=inconclusive\nregressed=[]\nfound=true\n", "inconclusive", True),
        (0, "", "passed", False),  # a qualification
        (2, "", "inconclusive", False),
    ],
)
def test_code_and_verdict_are_those_of_the_gate(measure, code, outputs, verdict, is_found):
    ran = measure(code=code, outputs=outputs)
    assert (ran.code, ran.outputs["exit-code"]) == (code, str(code))
    assert ran.outputs["verdict"] == verdict
    assert ("found.txt" in files_in(ran)) == is_found


def test_an_error_is_the_report_and_the_summary(measure):
    ran = measure(error=ERROR)
    assert (ran.code, ran.outputs["verdict"], ran.outputs["exit-code"]) == (2, "error", "2")
    assert Path(ran.outputs["report"]).read_text() == ran.summary
    assert ran.summary == (
        f"### mnistbench: the gate could not measure\n\n    loading both sides\n"
        f"    mnistbench: {ERROR}\n"
    )


def test_defaults_give_way_to_arguments_and_to_the_settings_of_the_project(measure, folder):
    ran = measure(args="--inconclusive fail --budget 3m")
    assert ran.gate[-4:] == ["--inconclusive", "fail", "--budget", "3m"]  # the last one counts
    settings = folder / "checkout" / "pyproject.toml"
    settings.write_text('[tool.mnistbench.gate]\ninconclusive = "fail"\nthreshold = "5%"\n')
    assert "--budget=7m" in measure().gate
    assert "--inconclusive=warn" not in measure().gate
    settings.write_text('[tool.mnistbench.gate]\nbudget = "9m"\n')
    assert "--budget=7m" not in measure().gate
    settings.write_text("[tool.mnistbench\n")
    assert "--budget=7m" in measure().gate, "the gate reports the fault"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("--x 5% -- bench -k 'b16 or b1'", ["--x", "5%", "--", "bench", "-k", "b16 or b1"]),
        ("-- 'a folder/test_x.py::test_y[a b]'", ["--", "a folder/test_x.py::test_y[a b]"]),
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
def test_arguments_are_split_as_a_shell_does_and_nothing_in_them_is_run(
    measure, folder, text, words
):
    ran = measure(args=text)
    assert ran.gate[6:] == words
    assert (ran.code, list(folder.rglob("hacked"))) == (EXIT_PASSED, [])


def test_a_quote_that_is_not_closed_is_not_taken_for_a_regression(measure):
    ran = measure(args="-k 'b16")
    assert (ran.code, ran.gate) == (EXIT_INCONCLUSIVE, None)
    assert '::error title=mnistbench::args: No closing quotation in "-k \'b16"\n' in ran.log


@pytest.mark.parametrize(
    ("given", "made", "expected"),
    [
        ({}, [], "{job}"),
        ({"variables": {"VIRTUAL_ENV": "/active"}}, [], "/active"),
        ({"variables": {"CONDA_PREFIX": "/conda"}}, [], None),  # the gate finds it
        ({}, [".venv"], None),
        ({"variables": {"GITHUB_WORKSPACE": "{folder}/top"}}, ["../top/.venv"], None),
        ({"python": "{job}/bin/python", "variables": {"VIRTUAL_ENV": "/active"}}, [], "{job}"),
    ],
    ids=["job", "active", "conda", "venv", "venv of the root", "named"],
)
def test_the_sides_run_in_the_environment_of_the_project(measure, folder, given, made, expected):
    job = folder / "python-of-the-job"
    for name in made:
        (folder / "checkout" / name).mkdir(parents=True)
    variables = {
        name: value.format(folder=folder) for name, value in given.get("variables", {}).items()
    }
    python = given.get("python", "").format(job=job)
    environment = measure(python=python, variables=variables).environment
    assert environment.get("VIRTUAL_ENV") == (expected and expected.format(job=job))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("#!/bin/sh\nexit 3\n", "cannot be started; name the interpreter of the project"),
        ("#!/bin/sh\necho /nowhere\n", "has no bin/python in /nowhere; make a virtual environment"),
    ],
)
def test_an_interpreter_that_cannot_be_used_is_named(measure, folder, text, fault):
    program(folder / "other", text)
    ran = measure(python=str(folder / "other"))
    assert (ran.code, ran.gate) == (EXIT_INCONCLUSIVE, None)
    assert f"::error title=mnistbench::python: {folder / 'other'} {fault}\n" in ran.log


def test_the_code_of_a_fork_is_not_run_with_secrets(measure, folder):
    ran = measure(event="pull_request_target")
    assert (ran.code, ran.gate) == (EXIT_INCONCLUSIVE, None)
    assert "::error title=mnistbench::pull_request_target: gives the code of" in ran.log
    (folder / "raw.jsonl.gz").touch()
    judged = measure(event="pull_request_target", judge=f"{folder}/*.gz")
    assert (judged.code, judged.gate[0]) == (EXIT_PASSED, "judge")


@pytest.mark.parametrize("code", [EXIT_PASSED, EXIT_REGRESSED, EXIT_INCONCLUSIVE])
def test_a_shard_that_has_samples_passes_whatever_they_show(measure, code):
    ran = measure(code=code, shard="3/8", name="shard-3-of-8_1.jsonl.gz")
    assert (ran.code, ran.outputs["exit-code"]) == (EXIT_PASSED, str(code))
    assert ran.gate[2] == "--shard=3/8"
    assert ran.gate[3] == "--format=json"  # a page of a part would be taken for the whole one
    assert ran.outputs["artifact"] == "mnistbench-gate-shard-3-of-8"
    assert measure(error=ERROR, shard="3/8").code == EXIT_INCONCLUSIVE


@pytest.mark.parametrize("code", [EXIT_PASSED, EXIT_REGRESSED, EXIT_INCONCLUSIVE])
def test_the_samples_of_all_shards_are_judged_as_one_gate(measure, folder, code):
    (folder / "all shards").mkdir()
    files = [folder / "all shards" / f"shard-{number}-of-2_1.jsonl.gz" for number in (1, 2)]
    for file in files:
        file.touch()
    (folder / "bin" / "python").unlink()  # a job that judges needs no environment of a project
    ran = measure(code=code, judge=f"{folder}/all shards/shard-*", args="--accept 'x:y:5%'")
    assert ran.code == code
    assert ran.gate == [
        "judge",
        "--format=html",
        f"--output={ran.outputs['folder']}/gate.html",
        "--inconclusive=warn",
        "--accept",
        "x:y:5%",
        *map(str, files),
    ]
    ran = measure(judge=f"{folder}/$(touch hacked)/shard-*")
    assert (ran.code, ran.gate) == (EXIT_INCONCLUSIVE, None)
    assert "::error title=mnistbench::judge: no file is named " in ran.log
    assert list(folder.rglob("hacked")) == []


def test_the_real_judge_leaves_what_the_step_reads(measure, folder):
    settings = folder / "checkout" / "pyproject.toml"
    settings.write_text('[tool.mnistbench.gate]\ninconclusive = "fail"\n')
    program(folder / "gate-python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    samples = REPOSITORY / "tests" / "data" / "gate_samples_0.1.0.jsonl.gz"
    ran = measure(judge=str(samples))
    codes = {"passed": EXIT_PASSED, "regressed": EXIT_REGRESSED, "inconclusive": 2}
    assert ran.code == codes[ran.outputs["verdict"]]
    assert ran.summary.startswith(f"### mnistbench: {ran.outputs['verdict']}: ")
    assert files_in(ran) >= {"report.md", "gate.html"}
    assert ("found.txt" in files_in(ran)) == (ran.outputs["found"] == "true")


def test_two_gates_of_a_job_need_keys(measure, folder):
    assert measure(key="py 3.12/a").outputs["artifact"] == "mnistbench-gate-py-3.12-a"
    twice = {**GATE, "run": GATE["run"].replace('exit "$code"', "") + GATE["run"]}
    variables = {"GATE_PYTHON": str(folder / "gate-python"), "REAL_PYTHON": sys.executable}
    more = dict.fromkeys(("INPUT_ARGS", "INPUT_JUDGE", "INPUT_SHARD", "FAKE_ERROR"), "")
    fakes = {"FAKE_CODE": "0", "FAKE_NAME": "1", "FAKE_REPORT": REPORT, "FAKE_OUTPUTS": OUTPUTS}
    done = bash(twice, {**os.environ, **variables, **more, **fakes}, folder)
    assert done.returncode == EXIT_INCONCLUSIVE
    assert (
        "key: this job has another gate of the artifact mnistbench-gate; give each" in done.stdout
    )


def test_a_qualification_has_no_page_and_later_gates_get_its_result(measure, folder):
    ran = measure(args="--qualify -- bench")
    assert ran.gate[2:] == [
        "--format=json",
        f"--output={ran.outputs['folder']}/gate.json",
        "--inconclusive=warn",
        "--qualify",
        "--",
        "bench",
    ]
    saved = folder / "checkout" / ".benchmarks" / "gate" / "qualification_20261120_103105.json"
    saved.parent.mkdir(parents=True)
    saved.touch()
    assert f"gate/{saved.name}" in files_in(measure())


# ---- Comment -------------------------------------------------------------------------------------

#: gh, with the comments of a pull request in a file. Without --paginate, it has the first 100.
GH = r"""#!PYTHON
import json, os, pathlib, re, sys

state = pathlib.Path(os.environ["SEEN"], "github.json")
github = json.loads(state.read_text())
words = sys.argv[1:]
github["calls"].append(words)

def done(text="", fault="", code=0):
    state.write_text(json.dumps(github))
    print(text, end="")
    print(fault, file=sys.stderr, end="")
    sys.exit(code)

def value(flag, name):
    given = [words[at + 1] for at, word in enumerate(words) if word == flag]
    return next(text.split("=", 1)[1] for text in given if text.startswith(f"{name}="))

assert words[0] == "api" and os.environ["GH_TOKEN"] == "a token"
query = words[words.index("--jq") + 1] if "--jq" in words else ""
method = words[words.index("--method") + 1] if "--method" in words else "GET"
if github["fault"] and (method in ("POST", "PATCH") or github["fails_always"]):
    done('{"message": "no"}', f"gh: {github['fault']}\n", 1)
if words[1] == "graphql":
    assert value("-f", "owner") + "/" + value("-f", "name") == "owner/project"
    comments = github["comments"] if "--paginate" in words else github["comments"][:100]
    marker = re.search(r'startswith\("(.*)"\)', query)[1]
    assert "viewerDidAuthor" in query and int(value("-F", "number"))
    own = [c for c in comments if c["author"] == github["viewer"] and c["body"].startswith(marker)]
    # databaseId is a number of 32 bits, which those of today's comments exceed.
    has_ids = query.endswith(".fullDatabaseId") and "{fullDatabaseId " in value("-f", "query")
    done("".join(f"{comment['id'] if has_ids else None}\n" for comment in own))
path = words[3]
if path == "repos/owner/project/pulls":
    assert value("-f", "state") == "open"
    wanted = value("-f", "head"), re.search(r'head.sha == "(\w+)"', query)[1]
    pulls = [pull for pull in github["pulls"] if (pull["head"], pull["sha"]) == wanted]
    done("".join(f"{pull['number']}\n" for pull in pulls))
body = pathlib.Path(value("-F", "body").removeprefix("@")).read_text()
if method == "PATCH":
    number = int(path.removeprefix("repos/owner/project/issues/comments/"))
    next(c for c in github["comments"] if c["id"] == number)["body"] = body
    done('{"id": 1}')
number = re.fullmatch(r"repos/owner/project/issues/(\d+)/comments", path)[1]
comment = {"id": 3_000_000_000 + len(github["comments"]), "author": github["viewer"], "body": body}
github["comments"].append({**comment, "on": int(number)})
done('{"id": 1}')
"""

BOT = "github-actions[bot]"
ARTIFACT = "https://github.example/owner/project/actions/runs/34/artifacts/56"
LINK = f"\n[All cases as a page: gate.html in the artifact]({ARTIFACT})\n"
NOTICE = "::notice title=mnistbench::There is no comment: "


def evaluated(expression, contexts):
    """Return the value of an expression of names and ``||``."""
    names = expression.removeprefix("${{ ").removesuffix(" }}").split(" || ")
    values = [
        reduce(lambda value, key: value.get(key, {}) if value else {}, name.split("."), contexts)
        for name in names
    ]
    return str(next((value for value in values if value), ""))


class Commented(NamedTuple):
    """What the step that comments leaves."""

    code: int
    log: str
    comments: list[dict]
    calls: list[list[str]]


@pytest.fixture
def comment(folder):
    """Run the step that comments; keywords are inputs, or what GitHub has and does."""
    program(folder / "bin" / "gh", GH.replace("PYTHON", sys.executable))
    results = folder / "results"
    results.mkdir()
    (results / "gate.html").touch()

    def run(
        *,
        event="pull_request",
        text=REPORT,
        is_found=True,
        has_page=True,
        comments=(),
        pulls=(),
        fault="",
        fails_always=False,
        variables=None,
        foreign=False,
        **inputs,
    ):
        (results / "report.md").write_text(text)
        (results / "found.txt").unlink(missing_ok=True)
        if is_found:
            (results / "found.txt").touch()
        (folder / "github.json").write_text(
            json.dumps(
                {
                    "viewer": BOT,
                    "comments": list(comments),
                    "pulls": list(pulls),
                    "fault": fault,
                    "fails_always": fails_always,
                    "calls": [],
                }
            )
        )
        event_data = json.loads((EVENTS / f"{event}.json").read_text())
        contexts = {
            "inputs": {
                "comment": INPUTS["comment"]["default"],
                "token": "a token",
                "report": str(results) if foreign else "",
                **inputs,
            },
            "github": {"repository": "owner/project", "event": event_data},
            "steps": {
                "gate": {"outputs": {} if foreign else {"folder": str(results)}},
                "upload": {
                    "outputs": {"artifact-url": ARTIFACT} if has_page and not foreign else {}
                },
            },
        }
        bound = {name: evaluated(text, contexts) for name, text in COMMENT["env"].items()}
        done = bash(COMMENT, {**os.environ, **(variables or {}), **bound}, folder)
        github = json.loads((folder / "github.json").read_text())
        return Commented(done.returncode, done.stdout, github["comments"], github["calls"])

    return run


def test_the_first_comment_is_created_and_the_next_one_replaces_it(comment):
    first = comment()
    assert (first.code, first.log) == (EXIT_PASSED, "")
    [made] = first.comments
    marker, _, text = made["body"].partition("\n")
    assert re.fullmatch(r"<!-- mnistbench gate [\d-]+ -->", marker)
    assert (made["on"], text) == (12, REPORT + LINK)
    again = comment(text="### mnistbench: passed\n", is_found=False, comments=first.comments)
    [kept] = again.comments
    assert kept["id"] == made["id"]
    assert kept["body"] == f"{marker}\n### mnistbench: passed\n{LINK}"


def test_a_comment_of_another_gate_or_by_somebody_else_is_never_changed(comment):
    [own] = comment().comments
    other_gates = [
        comment(variables=variables, **inputs).comments[0]["body"]
        for variables, inputs in (
            ({"GITHUB_WORKFLOW": "nightly"}, {}),
            ({"GITHUB_JOB": "gpu"}, {}),
            ({}, {"key": "py3.12"}),
        )
    ]
    assert len({body.partition("\n")[0] for body in (own["body"], *other_gates)}) == 4
    strange = [{"id": n, "author": BOT, "body": body} for n, body in enumerate(other_gates)]
    strange += [
        {"id": 10, "author": BOT, "body": "coverage: 93 %"},
        {"id": 11, "author": BOT, "body": f"> {own['body']}"},
        {"id": 12, "author": "guest", "body": own["body"]},
        *({"id": 100 + n, "author": "guest", "body": "more than a page"} for n in range(150)),
    ]
    ran = comment(comments=[*strange, own], text="new")
    assert ran.comments[:-1] == strange
    assert ran.comments[-1]["id"] == own["id"]
    assert "new" in ran.comments[-1]["body"]
    assert comment(comments=strange).comments[:-1] == strange


@pytest.mark.parametrize(
    ("when", "is_found", "is_there", "is_written"),
    [
        ("changes", True, False, True),
        ("changes", False, False, False),
        ("changes", False, True, True),
        ("always", False, False, True),
    ],
)
def test_when_it_comments(comment, when, is_found, is_there, is_written):
    earlier = comment().comments if is_there else []
    ran = comment(comment=when, is_found=is_found, text="new", comments=earlier)
    assert any("new" in made["body"] for made in ran.comments) == is_written


def test_which_steps_run_is_said_by_their_conditions():
    measures = "${{ inputs.report == '' }}"
    assert (INSTALL["if"], GATE["if"]) == (measures, measures)
    assert UPLOAD["if"] == "${{ !cancelled() && steps.gate.outputs.folder != '' }}"
    comments = COMMENT["if"].removeprefix("${{ ").removesuffix(" }}").split(" && ")
    assert comments == [
        "!cancelled()",
        "inputs.comment != 'never'",
        "inputs.shard == ''",
        "(inputs.report != '' || steps.gate.outputs.report != '')",
        "(github.event_name == 'pull_request' || github.event_name == 'workflow_run')",
    ]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("Resource not accessible by integration (HTTP 403)", "the token may not write one, as in"),
        ("Resource not accessible by integration", "the token may not write one, as in"),
        ("Server Error (HTTP 502)", "gh failed: gh: Server Error (HTTP 502). The summary"),
    ],
)
@pytest.mark.parametrize("event", ["pull_request", "pull_request_of_fork"])
@pytest.mark.parametrize("fails_always", [False, True])
def test_a_failure_of_gh_leaves_its_reason_and_does_not_fail_the_job(
    comment, fault, reason, event, fails_always
):
    ran = comment(event=event, fault=fault, fails_always=fails_always)
    assert (ran.code, ran.comments) == (EXIT_PASSED, [])
    assert ran.log.startswith(f"{NOTICE}{reason}")
    assert ran.log.count("::notice") == 1


def test_a_runner_without_gh_is_named(comment, folder):
    (folder / "bin" / "gh").unlink()
    ran = comment(variables={"PATH": _path_without("gh")})
    assert (ran.code, ran.comments) == (EXIT_PASSED, [])
    assert ran.log.startswith(f"{NOTICE}gh, the command line of GitHub, is not installed")


def _path_without(name):
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not Path(folder, name).exists())


def test_a_comment_has_no_link_without_a_page(comment, folder):
    assert comment(has_page=False).comments[0]["body"].endswith(REPORT)
    (folder / "results" / "gate.html").unlink()
    assert comment().comments[0]["body"].endswith(REPORT)


def test_a_report_that_is_too_long_for_a_comment_has_a_link(comment):
    [made] = comment(text=REPORT + "- x\n" * 20_000).comments
    _, heading, *_ = made["body"].splitlines()
    assert heading == REPORT.splitlines()[0]
    assert "[the summary](https://github.example/owner/project/actions/runs/34)" in made["body"]
    assert made["body"].endswith(LINK)
    assert len(made["body"]) < 65_536


def test_the_step_with_the_token_runs_no_file_that_measured_code_has_named(comment, folder):
    (folder / "named").write_text('[ -z "$GH_TOKEN" ] || touch "$SEEN/stolen"\n')
    ran = comment(variables={"BASH_ENV": str(folder / "named")})  # as GitHub does after the step
    assert (len(ran.comments), list(folder.rglob("stolen"))) == (1, [])


# ---- Comments on pull requests from forks --------------------------------------------------------

HEAD_SHA = "5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f80"
FORK = {"number": 13, "head": "guest:patch-1", "sha": HEAD_SHA}


def test_the_pull_request_is_found_by_the_commit_that_github_names(comment):
    others = [
        {"number": 7, "head": "guest:patch-1", "sha": "0" * 40},
        {"number": 8, "head": "other:patch-1", "sha": HEAD_SHA},
    ]
    ran = comment(event="workflow_run", foreign=True, pulls=[*others, FORK])
    [made] = ran.comments
    assert made["on"] == 13
    run = "https://github.example/owner/project/actions/runs/30433642"
    assert made["body"].endswith(f"gate.html in the artifact]({run})\n")
    ran = comment(event="workflow_run", foreign=True, pulls=others)
    assert (ran.code, ran.comments) == (EXIT_PASSED, [])
    assert ran.log.startswith(f"{NOTICE}no open pull request has the commit that was measured")


@pytest.mark.parametrize("event", ["workflow_run", "pull_request"])
def test_the_report_of_a_job_that_ran_foreign_code_is_shown_as_text(comment, event):
    hostile = (
        "### passed\r\n```\n</pre>\n@owner ![x](https://evil.example/x)\n\0<!-- mnistbench -->\n"
    )
    [made] = comment(event=event, foreign=True, pulls=[FORK], text=hostile).comments
    marker, heading, empty, *block = made["body"].splitlines()
    assert marker.startswith("<!-- mnistbench gate ")
    assert heading == "### mnistbench: report of a job that ran the code of this pull request"
    assert empty == ""
    text = block[: block.index("")]
    assert all(line.startswith("    ") for line in text)
    assert "\0" not in made["body"]
    assert "\r" not in made["body"]
    [made] = comment(
        event="workflow_run", foreign=True, pulls=[FORK], text="x\n" * 100_000
    ).comments
    assert len(made["body"]) < 65_536


def test_a_folder_without_a_report_is_named(comment):
    ran = comment(event="workflow_run", report="/nowhere", pulls=[FORK])
    assert (ran.code, ran.comments) == (EXIT_PASSED, [])
    assert ran.log.startswith(f"{NOTICE}there is no report.md in /nowhere")


# ---- The file ------------------------------------------------------------------------------------


def test_the_arguments_of_the_gate_are_those_that_the_command_takes(measure):
    assert cli.parser("gate").parse_args(measure().gate).format == "html"


def test_no_script_has_an_expression_and_no_step_imports_a_module_of_the_checkout():
    # What an expression stands for would be run: a branch may have the name $(...).
    scripts = [step["run"] for step in (INSTALL, GATE, COMMENT)]
    assert not any("${{" in script for script in scripts)
    calls = re.findall(r'"\$GATE_PYTHON" +(\S+)', "".join(scripts))
    assert calls == ["-P", "-P"]


def test_every_input_and_output_is_used_and_described():
    steps = json.dumps(ACTION["runs"]["steps"])
    for name, declared in INPUTS.items():
        assert f"inputs.{name} " in steps, name
        assert declared["description"], name
        assert "default" in declared, name
    written = [*re.findall(r"echo \"([a-z-]+)=", GATE["run"]), "regressed"]
    for name, declared in ACTION["outputs"].items():
        assert declared["description"], name
        assert re.match(rf"\$\{{\{{ steps\.gate\.outputs\.{name} ", declared["value"]), name
        assert name in written


def test_the_gate_step_runs_where_the_project_is():
    assert GATE["working-directory"] == "${{ inputs.working-directory }}"
    assert INPUTS["working-directory"]["default"] == "."
    assert INPUTS["key"]["default"] == "${{ strategy.job-total > 1 && strategy.job-index || '' }}"
    assert INPUTS["token"]["default"] == "${{ github.token }}"


def test_the_upload_replaces_what_an_earlier_attempt_has_left():
    assert UPLOAD["with"] == {
        "name": "${{ steps.gate.outputs.artifact }}",
        "path": "${{ steps.gate.outputs.folder }}",
        "if-no-files-found": "ignore",
        "overwrite": True,
    }
    assert UPLOAD["continue-on-error"] is True


def test_the_marketplace_has_what_it_asks_for():
    assert ACTION["author"]
    assert ACTION["branding"].keys() == {"icon", "color"}


def test_the_source_distribution_has_the_action_and_the_examples():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"/action.yml", "/examples"} <= {*included}


# ---- Examples and the page -----------------------------------------------------------------------

EXAMPLES = {path.stem: path.read_text() for path in (REPOSITORY / "examples").glob("*.yml")}
[FIRST] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
WORKFLOWS = {
    "docs/ci.md": FIRST,
    **{name: text for name, text in EXAMPLES.items() if name != "gitlab-ci"},
}
PINNED = re.compile(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+( |$)", re.MULTILINE)


def jobs(name):
    return yaml.safe_load(WORKFLOWS[name])["jobs"]


def own_steps(name):
    """Return the steps of a workflow that use this action."""
    return [
        step
        for job in jobs(name).values()
        for step in job["steps"]
        if step.get("uses") == "OWNER/mnistbench@v1"
    ]


def test_the_first_workflow_is_short_and_needs_no_input():
    assert len(FIRST.splitlines()) <= 14
    [step] = own_steps("docs/ci.md")
    assert "with" not in step


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_gives_inputs_that_exist_and_measured_code_no_more_than_it_needs(name):
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert "pull_request_target" not in WORKFLOWS[name]
    for step in own_steps(name):
        assert step.get("with", {}).keys() <= INPUTS.keys()
    checkouts = [
        step
        for job in workflow["jobs"].values()
        for step in job["steps"]
        if "actions/checkout" in step.get("uses", "")
    ]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    if "workflow_run" in workflow[True]:  # the key "on"
        assert checkouts == []
        assert not any("run" in step for job in workflow["jobs"].values() for step in job["steps"])


def test_the_commits_that_are_pinned_have_their_version_beside_them():
    texts = [(REPOSITORY / "action.yml").read_text(encoding="utf-8")]
    texts += [text for name, text in WORKFLOWS.items() if name != "docs/ci.md"]
    for text in texts:
        others = len(re.findall("uses: ", text)) - text.count("uses: OWNER/mnistbench@v1")
        assert len(PINNED.findall(text)) == others


@pytest.mark.parametrize("name", [name for name in WORKFLOWS if name != "docs/ci.md"])
def test_an_example_ends_by_itself_and_replaces_the_run_before(name):
    assert yaml.safe_load(WORKFLOWS[name])["concurrency"]["group"]
    assert all(job["timeout-minutes"] <= 30 for job in jobs(name).values())


def test_the_workflow_for_forks_reads_the_artifact_of_the_one_that_measures():
    assert yaml.safe_load(EXAMPLES["pull-request"])["name"] in EXAMPLES["comment-on-forks"]
    [job] = jobs("comment-on-forks").values()
    download, comment = job["steps"]
    assert download["with"]["name"] == f"mnistbench-{next(iter(jobs('pull-request')))}"
    assert comment["with"] == {"report": download["with"]["path"]}


def test_the_workflow_of_shards_measures_all_of_them_and_judges_them_in_any_case():
    gate, verdict = jobs("many-machines").values()
    numbers = gate["strategy"]["matrix"]["shard"]
    assert numbers == list(range(1, len(numbers) + 1))
    assert gate["strategy"]["fail-fast"] is False
    shard, judge = own_steps("many-machines")
    assert shard["with"]["shard"] == f"${{{{ matrix.shard }}}}/{len(numbers)}"
    assert (verdict["needs"], verdict["if"]) == ("gate", "${{ !cancelled() }}")
    [download] = [step for step in verdict["steps"] if "download" in step["uses"]]
    pattern = re.compile(download["with"]["pattern"].replace("*", ".*"))
    assert pattern.fullmatch("mnistbench-gate-shard-1-of-4")
    assert pattern.fullmatch("mnistbench-gate-3-shard-4-of-4")
    assert judge["with"]["judge"] == f"{download['with']['path']}/gate/shard-*.jsonl.gz"


@pytest.mark.parametrize("name", ["compiled-project", "gitlab-ci"])
def test_the_command_of_an_example_is_one_that_the_gate_takes(name):
    if name == "compiled-project":
        [step] = own_steps(name)
        words = ["gate", *step["with"]["args"].split()]
    else:
        script = yaml.safe_load(EXAMPLES[name])["gate"]["script"]
        words = script[-1].removeprefix("mnistbench ").split()
    assert cli.parser("gate").parse_args(words)


def test_the_page_lists_inputs_outputs_and_examples():
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert [name for name in rows if name in INPUTS] == list(INPUTS)
    assert rows["comment"].strip("`") == INPUTS["comment"]["default"]
    outputs = re.search(r"^\| output .*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1]
    assert all(f"`{name}`" in outputs for name in ACTION["outputs"])
    assert {*re.findall(r"\(\.\./examples/([a-z-]+)\.yml\)", PAGE)} == {*EXAMPLES}


def test_the_page_lists_the_variables_that_are_not_passed_on():
    rows = re.findall(r"^\| .* \| `([A-Z_]+)` \| (.*) \|$", PAGE, re.MULTILINE)
    shown = {service: tuple(re.findall(r"`([^`]+)`", names)) for service, names in rows}
    assert shown == JOB_VARIABLES


@pytest.fixture
def lint(tmp_path):
    """Return what actionlint prints about a workflow."""
    actionlint = shutil.which("actionlint")
    if not actionlint:
        pytest.skip("no actionlint; tox -e actions")

    def run(text):
        (tmp_path / "workflow.yml").write_text(text)
        command = [actionlint, "-no-color", tmp_path / "workflow.yml"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    return run


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actionlint_accepts_the_workflow(lint, name):
    assert lint(WORKFLOWS[name]) == ""


def test_actionlint_accepts_the_steps_as_those_of_a_workflow(lint):
    # It does not check the steps of an action. Those of a workflow that is called with the same
    # inputs have the same contexts.
    called = {"workflow_call": {"inputs": {name: {"type": "string"} for name in INPUTS}}}
    job = {"runs-on": "ubuntu-24.04", "steps": ACTION["runs"]["steps"]}
    workflow = {"name": "steps", "on": called, "jobs": {"gate": job}}
    assert lint(yaml.safe_dump(workflow, sort_keys=False)) == ""
