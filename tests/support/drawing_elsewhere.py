"""Pictures that a program draws in a folder that has a file matplotlibrc."""

import subprocess
import sys


def drawn_alike(tmp_path, program, picture, settings):
    """Return whether a program draws the same bytes with a matplotlibrc beside it and without."""
    drawn = []
    for name in ("with", "without"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "with":
            (folder / "matplotlibrc").write_bytes(settings)
        subprocess.run([sys.executable, "-P", "-c", program], cwd=folder, check=True)
        drawn.append((folder / picture).read_bytes())
    return drawn[0] == drawn[1]
