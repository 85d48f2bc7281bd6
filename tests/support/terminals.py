"""A program run on a terminal of its own, as tests of progress bars need it."""

import os
import pty
import select
import signal
import termios

from forks import Fork


def run_on_terminal(module, *arguments, columns, interrupt_at=None, **options):
    """Return the exit status and all that was printed; Ctrl-C is sent once, as soon as a text has appeared."""
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
