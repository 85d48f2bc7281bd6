"""Environments that uv makes from wheels of tiny packages."""

from __future__ import annotations

import importlib.metadata
import subprocess
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mnistbench.core.errors import UsageError
from mnistbench.gate.environments import made, uv
from mnistbench.gate.environments.made import environment
from mnistbench.gate.environments.packages import Installed
from mnistbench.gate.environments.python import Interpreter

#: As torch: ``vision`` requires one version of it, and it requires one version of ``backend`` and
#: most versions of ``tool``.
WHEELS = (
    ("backend", "1.0"),
    ("backend", "2.0"),
    ("tool", "1.0"),
    ("tool", "2.0"),
    ("tool", "3.0"),
    ("large", "1.0", "backend==1.0", "tool<2"),
    ("large", "1.5", "backend==1.0", "tool"),
    ("large", "2.0", "backend==2.0", "tool"),
    ("vision", "0.9", "large==1.5"),
    ("vision", "1.0", "large==2.0"),
    ("alone", "1.0"),
    ("alone", "2.0"),
)

PRESENT = [
    Installed("alone", "1.0"),
    Installed("backend", "2.0"),
    Installed("large", "2.0", ("backend==2.0", "tool")),
    Installed("mnistbench", "0.1"),
    Installed("tool", "2.0"),
]
VISION = Installed("vision", "1.0", ("large==2.0",))


def write_wheel(folder, name, version, *requires, code=""):
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}.py", code)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache of a user whose project has the packages PRESENT, with uv and its index."""
    try:
        uv.find()
    except UsageError:
        pytest.skip("uv is not installed")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for wheel in WHEELS:
        write_wheel(wheels, *wheel)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setattr("platformdirs.user_cache_path", lambda name: tmp_path / ".cache" / name)
    monkeypatch.setattr(made, "installed", lambda _: PRESENT)
    return tmp_path / ".cache" / "mnistbench"


def versions(*changes):
    """Make an environment; return the version of each package."""
    with environment([Requirement(change) for change in changes], Interpreter.own()) as python:
        [site] = Path(python).parent.parent.glob("lib/python*/site-packages")
        return {
            distribution.name: distribution.version
            for distribution in importlib.metadata.distributions(path=[str(site)])
        }


def test_an_environment_can_be_used_and_is_removed(cache):
    with environment([Requirement("alone==2.0")], Interpreter.own()) as python:
        code = "import alone, large, importlib.metadata as m; print(m.version('alone'))"
        printed = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True)
        assert printed.stdout == b"2.0\n"
        assert Path(python).is_relative_to(cache)
    assert list(cache.iterdir()) == []


def test_other_packages_keep_their_versions(cache):
    assert versions("alone==2.0") == {
        "alone": "2.0",
        "backend": "2.0",
        "large": "2.0",
        "tool": "2.0",
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (("large==1.5",), {"large": "1.5", "backend": "1.0", "tool": "2.0"}),
        (("large==1.0",), {"large": "1.0", "backend": "1.0", "tool": "1.0"}),
        (("large==1.5", "tool==3.0"), {"large": "1.5", "backend": "1.0", "tool": "3.0"}),
        (("large>=2",), {"large": "2.0", "backend": "2.0", "tool": "2.0"}),
    ],
)
def test_what_a_changed_package_excludes_changes_with_it(cache, changes, expected):
    assert versions(*changes) == {"alone": "1.0", **expected}


def test_what_requires_another_version_of_a_changed_package_changes_with_it(cache, monkeypatch):
    monkeypatch.setattr(made, "installed", lambda _: [*PRESENT, VISION])
    assert versions("large==1.5") == {
        "alone": "1.0",
        "backend": "1.0",
        "large": "1.5",
        "tool": "2.0",
        "vision": "0.9",
    }


def test_a_changed_wheel_is_installed_as_it_is_now(cache, tmp_path):
    change = Requirement(f"alone @ {write_wheel(tmp_path, 'alone', '3.0').as_uri()}")
    for number in ("1", "2"):
        write_wheel(tmp_path, "alone", "3.0", code=f"number = {number}")
        with environment([change], Interpreter.own()) as python:
            code = "import alone; print(alone.number)"
            printed = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True)
        assert printed.stdout.decode() == f"{number}\n"


def test_what_uv_cannot_find_is_one_line_and_leaves_nothing(cache):
    with pytest.raises(UsageError, match=r"^no environment with alone==9: uv: Because .*alone"):
        versions("alone==9")
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_one_line(cache):
    cache.parent.write_text("a file", encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"mnistbench: cannot be written \(.+\); set XDG_CACHE_HOME to a folder"
    ):
        versions("alone==2.0")


# ---- Again, and without a network ----------------------------------------------------------------


class Handler(SimpleHTTPRequestHandler):
    """Serves the files of a folder, and keeps which ones were asked for."""

    def log_message(self, format, *arguments):  # noqa: A002  # the name of the base class
        self.server.paths.append(self.path)


@pytest.fixture
def index(cache, tmp_path, monkeypatch):
    """A package index with the wheels."""
    for name in {wheel[0] for wheel in WHEELS}:
        (tmp_path / name).mkdir()
        files = (tmp_path / "wheels").glob(f"{name}-*")
        links = "".join(f'<a href="/wheels/{file.name}">{file.name}</a>\n' for file in files)
        (tmp_path / name / "index.html").write_text(links, encoding="utf-8")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=tmp_path))
    server.paths = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for variable in ("UV_NO_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(variable)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    yield server
    server.shutdown()
    server.server_close()


def test_an_environment_is_made_again_without_a_download_and_without_a_network(index):
    first = versions("large==1.5")
    assert any(".whl" in path for path in index.paths)
    index.paths.clear()
    assert versions("large==1.5") == first
    assert not any(".whl" in path for path in index.paths)
    index.shutdown()
    index.server_close()
    assert versions("large==1.5") == first
    with pytest.raises(UsageError, match=r"^no environment with large==1.0: uv: .*127\.0\.0\.1"):
        versions("large==1.0")
