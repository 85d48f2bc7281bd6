"""Run the command, or pytest, without what Windows lacks.

Modules, functions, signals and the C library. Paths, consoles and processes are still those of this
system.
"""

import ctypes
import os
import signal
import sys

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
FUNCTIONS = (
    "fork",
    "forkpty",
    "getloadavg",
    "getppid",
    "getsid",
    "killpg",
    "mkfifo",
    "register_at_fork",
    "sched_getaffinity",
    "sched_setaffinity",
    "setsid",
)
SIGNALS = ("SIGALRM", "SIGBUS", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGSYS", "SIGUSR1")


def take_away():
    """Remove them from this process."""
    sys.modules.update(dict.fromkeys(MODULES))
    for module, names in ((os, FUNCTIONS), (signal, SIGNALS)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    load = ctypes.CDLL

    def load_by_name(name, *args, **kwargs):
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        return load(name, *args, **kwargs)

    ctypes.CDLL = load_by_name


def main(program, *arguments):
    """Run a program, and return its exit code."""
    if program == "pytest":
        import pytest

        return pytest.main([*arguments])
    from mnistbench import cli

    return cli.main(arguments)


if __name__ == "__main__":
    take_away()
    sys.exit(main(*sys.argv[1:]))
