"""A disk that takes no more, by a limit of the system for the files of this process."""

import errno
import os
import resource
from contextlib import contextmanager

#: How the system says it.
NO_ROOM = os.strerror(errno.EFBIG)


@contextmanager
def largest_file(n_bytes):
    """Let no file grow beyond this size in the body; a longer write ends there with an error."""
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
