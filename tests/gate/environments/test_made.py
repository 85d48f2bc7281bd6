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

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "alone"
version = "4.0"
"""

#: Builds a wheel of a module with the number in a file.
BACKEND = """
import pathlib, zipfile

def build_wheel(directory, *_):
    name = "alone-4.0-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(directory, name), "w") as archive:
        archive.writestr("alone.py", "number = " + pathlib.Path("number").read_text())
        info = "alone-4.0.dist-info/"
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\\nName: alone\\nVersion: 4.0\\n")
        archive.writestr(
            info + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        )
        archive.writestr(info + "RECORD", "")
    return name
"""


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
    """The cache of uv. The project has the packages PRESENT, and uv finds the wheels."""
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
    monkeypatch.setattr(made, "installed", lambda _: PRESENT)
    return tmp_path / "uv"


def made_with(*changes):
    return environment([Requirement(change) for change in changes], Interpreter.own())


def versions(*changes):
    """Make an environment; return the version of each package."""
    [site] = Path(made_with(*changes)).parent.parent.glob("lib/python*/site-packages")
    return {
        distribution.name: distribution.version
        for distribution in importlib.metadata.distributions(path=[str(site)])
    }


def printed(python, code):
    done = subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_an_environment_can_be_used_and_is_used_again(cache):
    python = made_with("alone==2.0")
    assert Path(python).is_relative_to(cache)
    code = "import alone, large, importlib.metadata as m; print(m.version('alone'))"
    assert printed(python, code) == "2.0"
    assert made_with("alone==2.0") == python
    assert made_with("alone==1.0") != python


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


def test_a_changed_wheel_or_folder_is_installed_as_it_is_now(cache, tmp_path):
    package = tmp_path / "a package"
    package.mkdir()
    (package / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (package / "backend.py").write_text(BACKEND, encoding="utf-8")
    for number in ("1", "2"):
        wheel = write_wheel(tmp_path, "alone", "3.0", code=f"number = {number}")
        (package / "number").write_text(number, encoding="utf-8")
        for source in (wheel, package):
            python = made_with(f"alone @ {source.as_uri()}")
            assert printed(python, "import alone; print(alone.number)") == number


def test_what_uv_cannot_find_is_one_line(cache):
    with pytest.raises(UsageError, match=r"^no environment with alone==9: uv: Because .*alone"):
        versions("alone==9")


# ---- Again, and without a network ----------------------------------------------------------------


class Handler(SimpleHTTPRequestHandler):
    """Serves the files of a folder, and keeps which ones were asked for."""

    def do_GET(self):  # the name of the base class
        if self.server.asks_for_password and not self.headers["Authorization"]:
            self.send_error(401)
        else:
            super().do_GET()

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
    server.asks_for_password = False
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


def test_a_private_index_of_the_project_is_used(index, monkeypatch, tmp_path):
    index.asks_for_password = True
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("uv.toml").write_text(
        f'[[index]]\nurl = "http://me:secret@127.0.0.1:{index.server_port}"\ndefault = true\n',
        encoding="utf-8",
    )
    assert versions("large==1.5")["large"] == "1.5"
