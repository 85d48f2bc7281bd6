"""Run the command without what Windows lacks: modules, functions, signals and the C library.

A stand-in: paths, consoles and processes are still those of this system.
"""

import ctypes
import os
import signal
import sys

for module in ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[module] = None
for function in (
    "fork",
    "forkpty",
    "getppid",
    "getsid",
    "killpg",
    "mkfifo",
    "register_at_fork",
    "sched_getaffinity",
    "sched_setaffinity",
    "setsid",
):
    if hasattr(os, function):
        delattr(os, function)
for name in ("SIGALRM", "SIGBUS", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGSYS", "SIGUSR1"):
    if hasattr(signal, name):
        delattr(signal, name)

load = ctypes.CDLL


def load_by_name(name, *args, **kwargs):
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    return load(name, *args, **kwargs)


ctypes.CDLL = load_by_name

if __name__ == "__main__":
    program, arguments = sys.argv[1], sys.argv[2:]
    if program == "pytest":
        import pytest

        sys.exit(pytest.main(arguments))
    from mnistbench.cli import main

    sys.exit(main(arguments))
