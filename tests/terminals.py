"""A command run on a terminal of its own, as tests of progress bars need it."""

import os
import pty
import signal
import subprocess
import termios
from pathlib import Path


def run_on_terminal(
    command: list[str], *, columns: int, cwd: Path, env: dict[str, str] | None = None, interrupt_at: str | None = None
) -> tuple[int, str]:
    """Return the exit status and all that was printed; Ctrl-C is sent once, as soon as a text has appeared."""
    terminal, child = pty.openpty()
    termios.tcsetwinsize(child, (24, columns))
    process = subprocess.Popen(command, cwd=cwd, env=env, stdin=child, stdout=child, stderr=child)
    os.close(child)
    printed = b""
    waiting = interrupt_at
    while True:
        try:
            block = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not block:
            break
        printed += block
        if waiting is not None and waiting.encode() in printed:
            waiting = None
            process.send_signal(signal.SIGINT)
    os.close(terminal)
    return process.wait(timeout=60), printed.decode("utf-8", "replace")
