"""See which files are opened, by whatever program: the system tells it, not Python.

Libraries in C read files of which no event of Python tells, and so do child processes.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

#: Flags of inotify(7): a file was opened or read; do not block, and close on exec.
_IN_ACCESS = 0x1
_IN_OPEN = 0x20
_NON_BLOCKING = os.O_NONBLOCK | os.O_CLOEXEC

#: ``struct inotify_event``: watch, mask, cookie, and the length of the name after it.
_EVENT = struct.Struct("iIII")

_READ_BYTES = 1 << 16


class OpenedFiles:
    """Those of some files that were opened since they were asked for last."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Watch files.

        Args:
            paths: the files; links are followed.
        """
        self._paths: dict[int, str] = {}  # by the number of the watch
        self._descriptor = -1
        self.is_complete = True  # whether all of them are watched
        wanted = [path for path in paths if os.path.isfile(path)]  # noqa: PTH113  # many
        if not wanted:
            return
        try:
            library = ctypes.CDLL(None, use_errno=True)
            self._descriptor = library.inotify_init1(_NON_BLOCKING)
        except (AttributeError, OSError, TypeError):  # another system than Linux
            self.is_complete = False
            return
        for path in wanted:
            name = os.fsencode(path)
            watch = library.inotify_add_watch(self._descriptor, name, _IN_OPEN | _IN_ACCESS)
            if watch < 0:  # there is a limit for each user
                self.is_complete = False
            else:
                self._paths[watch] = path

    def drain(self) -> set[str]:
        """Return the files that were opened since the last call."""
        opened = set[str]()
        while self._paths:
            try:
                events = os.read(self._descriptor, _READ_BYTES)
            except BlockingIOError:
                break
            except OSError:  # the code that is measured has closed it
                self.is_complete = False
                break
            offset = 0
            while offset < len(events):
                watch, _, _, length = _EVENT.unpack_from(events, offset)
                offset += _EVENT.size + length
                if watch in self._paths:
                    opened.add(self._paths[watch])
                else:  # -1: there were too many events
                    self.is_complete = False
        return opened
