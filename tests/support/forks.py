"""Run programs in forks of a process that has imported torch.

As isolated as processes, without the seconds of the import.
"""

import atexit
import gc
import multiprocessing
import os
import pty
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import termios
import warnings
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
#: What takes long to import. No pytest plug-in: pytest warns of plug-ins that it cannot rewrite
#: because they are imported.
_PRELOADED = (
    "torch torch._dynamo torch.utils.data torch.utils.tensorboard torchvision tensorboard "
    "scipy.stats sklearn.datasets PIL.Image tqdm tabulate jinja2 _pytest.config"
)
_FORKS.set_forkserver_preload(_PRELOADED.split())


class Fork:
    """A running ``python -m module``.

    Its output goes to files, or to the terminal with the given path.
    """

    def __init__(self, module, *arguments, cwd=None, env=None, errors=False, terminal=None):
        self._folder = tempfile.TemporaryDirectory()
        self._args = [module, *map(str, arguments)]
        self._streams = [terminal or str(Path(self._folder.name, name)) for name in ("out", "err")]
        environment = dict(os.environ if env is None else env)
        started = (self._args, str(cwd or Path.cwd()), environment, self._streams, errors)
        self._process = _FORKS.Process(target=_main, args=started)
        self._process.start()

    @property
    def pid(self):
        return self._process.pid

    def poll(self):
        return self._process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self._process.kill()

    def wait(self, timeout=None):
        """Return what ``subprocess.run`` returns."""
        self._process.join(timeout)
        if self._process.is_alive():
            self.kill()
            raise subprocess.TimeoutExpired(self._args, timeout)
        with self._folder:
            texts = [
                Path(path).read_text(encoding="utf-8") if Path(path).is_file() else ""
                for path in self._streams
            ]
        return subprocess.CompletedProcess(self._args, self._process.exitcode, *texts)


def run(module, *arguments, **options):
    """Run ``python -m module`` to its end and return its exit code and its output."""
    return Fork(module, *arguments, **options).wait()


def run_on_terminal(module, *arguments, columns, interrupt_at=None, **options):
    """Run a program on a terminal of its own; return the exit status and all that was printed.

    Ctrl-C is sent once, as soon as the text ``interrupt_at`` has appeared.
    """
    terminal, child = pty.openpty()
    termios.tcsetwinsize(child, (24, columns))
    process = Fork(module, *arguments, terminal=os.ttyname(child), **options)
    printed = b""
    while (running := process.poll() is None) or select.select([terminal], [], [], 0)[0]:
        if select.select([terminal], [], [], 0.1 if running else 0)[0]:
            printed += os.read(terminal, 4096)
        if interrupt_at is not None and interrupt_at.encode() in printed:
            interrupt_at = None
            process.send_signal(signal.SIGINT)
    os.close(child)
    os.close(terminal)
    return process.wait().returncode, printed.decode("utf-8", "replace")


def _main(arguments, cwd, environment, paths, errors):
    gc.freeze()  # the program's garbage collections do not go through all of torch
    for number, (name, path) in enumerate(zip(("stdout", "stderr"), paths, strict=True), start=1):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
        stream = os.fdopen(
            number, "w", 1 if os.isatty(number) else -1, "utf-8", "backslashreplace", closefd=False
        )
        setattr(sys, name, stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    sys.path.insert(0, cwd)
    sys.argv[:] = arguments
    if errors:
        warnings.simplefilter("error")
    try:
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
