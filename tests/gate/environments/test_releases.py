"""Which releases a range has, as a package index lists them."""

from __future__ import annotations

import json
import re
from email.message import Message
from io import BytesIO
from urllib.error import HTTPError, URLError

import pytest
from packaging.tags import platform_tags

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import releases as module
from mnistbench.gate.environments.python import Interpreter
from mnistbench.gate.environments.releases import Range, release_range, releases


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torch==2.11.0..2.15.0", Range("torch", "2.11.0", "2.15.0")),
        (" torch == 2.11 .. 2.15.0 ", Range("torch", "2.11", "2.15.0")),
        ("torch==2.15.0rc1..2.15.0", Range("torch", "2.15.0rc1", "2.15.0")),
        ("Typing.Extensions==4..4.12.0", Range("Typing.Extensions", "4", "4.12.0")),
    ],
)
def test_a_range_has_a_name_and_two_releases(text, expected):
    assert release_range(text) == expected


NO_RANGE = "is not a range of releases; give NAME==FIRST..LAST, such as torch==2.13.0..2.15.0"
NOT_OLDER = "give NAME==FIRST..LAST with the older release first"


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, NO_RANGE)
            for text in (
                "torch==2.11.0",
                "torch==2.11.0..",
                "torch==2.11.0...2.15.0",
                "torch>=2.11.0..2.15.0",
                "torch==2.11.0..new",
                "torch[opt]==2.11.0..2.15.0",
                "==1..2",
                "torch==2.11.*..2.15.0",
                "torch==2.11.0..2.15.0,!=2.13.0",
                "torch==1..2..3",
            )
        ),
        ("torch==2.15.0..2.11.0", f"has 2.15.0, which is not older than 2.11.0; {NOT_OLDER}"),
        ("torch==2.15..2.15.0", f"has 2.15, which is not older than 2.15.0; {NOT_OLDER}"),
        (
            "torch==2.13.0+cpu..2.15.0",
            (
                "names a build, 2.13.0+cpu; give 2.13.0, and select the build with uv's settings, "
                "such as UV_TORCH_BACKEND"
            ),
        ),
        ("jax==1..2", "names jax, which is not installed; name an installed package"),
        (
            "torch==2.4.0..2.15.0",
            "is older than 2.6, the oldest torch that the gate measures; give a newer version",
        ),
    ],
)
def test_what_is_no_range_is_one_line(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        release_range(text)


# ---- The index -----------------------------------------------------------------------------------


def wheel(version, tag="py3-none-any", **facts):
    return {"filename": f"part-{version}-{tag}.whl", **facts}


#: The files of a package, as an index has them.
FILES = [
    wheel("2.13.0"),
    wheel("2.10"),
    wheel("2.11.0"),
    wheel("2.11.1", "cp313-cp313-any"),
    wheel("2.11.1", f"cp311-abi3-{next(platform_tags())}", yanked=False),
    wheel("2.11.2", "cp310-cp310-win32"),
    wheel("2.11.3", yanked="wrong weights"),
    wheel("2.11.4", **{"requires-python": "<3.13"}),
    wheel("2.11.5", **{"requires-python": "nonsense"}),
    wheel("2.12.0rc1"),
    wheel("2.12.0", **{"requires-python": ">=3.11"}),
    wheel("2.12.0.post1"),
    {"filename": "part-2.12.5.tar.gz"},
    {"filename": "part-old_format.whl"},
]


class Index:
    """A package index, with functions in place of uv and of the network."""

    def __init__(self):
        self.files = FILES
        self.uv = "part==2.13.0\n    # from https://own.example/simple\n"
        self.content_type = "application/vnd.pypi.simple.v1+json"
        self.answer = None  # in place of the files
        self.request = None

    def run(self, program, arguments, text):
        assert "--emit-index-annotation" in arguments
        assert text == "part"
        return self.uv

    def open(self, request, timeout):
        self.request = request
        if isinstance(self.answer, Exception):
            raise self.answer
        text = json.dumps({"files": self.files}) if self.answer is None else self.answer
        response = BytesIO(text.encode())
        response.headers = Message()
        response.headers["Content-Type"] = self.content_type
        return response


@pytest.fixture
def index(monkeypatch):
    package_index = Index()
    project = Interpreter("/p/bin/python", "3.13.0+ (main)", ())
    monkeypatch.setattr(module, "of_project", lambda: project)
    monkeypatch.setattr(module.uv, "find", lambda: "uv")
    monkeypatch.setattr(module.uv, "run", package_index.run)
    monkeypatch.setattr(module, "urlopen", package_index.open)
    return package_index


def test_releases_with_a_wheel_for_the_project_are_listed_from_the_first_to_the_last(index):
    assert releases(Range("part", "2.11.0", "2.13.0")) == (
        "2.11.0",
        "2.11.1",
        "2.12.0",
        "2.12.0.post1",
        "2.13.0",
    )
    assert releases(Range("part", "2.12", "2.12.0.post1")) == ("2.12.0", "2.12.0.post1")


def test_one_request_asks_the_index_that_uv_names(index):
    releases(Range("part", "2.11.0", "2.13.0"))
    assert index.request.full_url == "https://own.example/simple/part/"
    assert index.request.get_header("Accept").startswith("application/vnd.pypi.simple.v1+json")
    assert not index.request.has_header("Authorization")


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("2.12.0rc1", "2.12.0.post1", ("2.12.0rc1", "2.12.0", "2.12.0.post1")),
        ("2.11.1", "2.12.0rc1", ("2.11.1", "2.12.0rc1")),
    ],
)
def test_pre_releases_are_listed_if_an_end_is_one(index, first, last, expected):
    assert releases(Range("part", first, last)) == expected


def test_builds_of_a_release_are_one_release(index):
    index.files = [wheel(version) for version in ("1+cpu", "1+cu130", "2+cpu")]
    assert releases(Range("part", "1", "2")) == ("1", "2")


def test_an_index_may_answer_html(index):
    index.content_type = "text/html"
    index.answer = """<!DOCTYPE html><a name="top"></a>
<a href="../files/part-1-py3-none-any.whl#sha256=00" data-requires-python="&gt;=3.11">part 1</a>
<a href="https://x.example/part-2%2Bcpu-py3-none-any.whl">part</a>
<a href="part-3-py3-none-any.whl" data-yanked="">part</a>
<a href="part-4-py3-none-any.whl" data-requires-python="&gt;=4">part</a>
<a href="part-5-py3-none-any.whl">part</a>"""
    assert releases(Range("part", "1", "5")) == ("1", "2", "5")


@pytest.mark.parametrize("option", ["--index-url", "--extra-index-url"])
def test_a_private_index_gets_the_credentials_that_uv_has(index, option):
    index.uv = (
        "--index-url https://other:x@other.example/simple\n"
        f"{option} https://me:se%20cret@own.example/simple/\n{index.uv}"
    )
    releases(Range("part", "2.11.0", "2.13.0"))
    assert index.request.full_url == "https://own.example/simple/part/"
    assert index.request.get_header("Authorization") == "Basic bWU6c2UgY3JldA=="


def test_an_index_may_be_a_folder(index, monkeypatch, tmp_path):
    monkeypatch.undo()
    (tmp_path / "part").mkdir()
    links = "".join(f'<a href="{file["filename"]}">x</a>' for file in FILES[:3])
    (tmp_path / "part" / "index.html").write_text(links, encoding="utf-8")
    monkeypatch.setattr(module.uv, "find", lambda: "uv")
    url = tmp_path.as_uri()
    monkeypatch.setattr(module.uv, "run", lambda *_, text: f"--index-url {url}\n# from {url}")
    assert releases(Range("part", "2.10", "2.13.0")) == ("2.10", "2.11.0", "2.13.0")


@pytest.mark.parametrize(
    ("first", "last", "missing"), [("2.9", "2.13.0", "2.9"), ("2.11", "3", "3")]
)
def test_an_end_that_does_not_exist_is_named(index, first, last, missing):
    with pytest.raises(UsageError) as raised:
        releases(Range("part", first, last))
    assert str(raised.value) == (
        f"part {missing} is not available: https://own.example/simple has no wheel of it for "
        "Python 3.13.0+ and this platform; the newest one that has is 2.13.0"
    )


UNKNOWN = "the releases of part are not known, because https://own.example/simple/part/"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            HTTPError("", 401, "Unauthorized", Message(), None),
            (
                f"{UNKNOWN} answers 401 Unauthorized; put the name and the password into the URL "
                "of the index, in UV_DEFAULT_INDEX"
            ),
        ),
        (HTTPError("", 500, "Wrong", Message(), None), f"{UNKNOWN} answers 500 Wrong"),
        (URLError("Name not known"), f"{UNKNOWN} does not answer (Name not known)"),
        (TimeoutError("timed out"), f"{UNKNOWN} does not answer (timed out)"),
        ("{", f"{UNKNOWN} does not answer as a package index does"),
        ("{}", f"{UNKNOWN} does not answer as a package index does"),
        ("[]", f"{UNKNOWN} does not answer as a package index does"),
    ],
    ids=str,
)
def test_what_an_index_cannot_answer_is_one_line(index, answer, message):
    index.answer = answer
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        releases(Range("part", "1", "2"))


def test_a_package_of_no_index_is_one_line(index):
    index.uv = "part==1.0\n"
    with pytest.raises(
        UsageError, match=r"^uv: found part in no package index, .*UV_DEFAULT_INDEX$"
    ):
        releases(Range("part", "1", "2"))
