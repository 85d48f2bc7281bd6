"""Errors for users. The message of each is one line: what is wrong, and what to do.

Any function of the package that works on a user's input may raise ``UsageError``, whose message is
one line for the user. A docstring says so only where a caller in the package catches it.
"""


class MnistbenchError(Exception):
    """Base of all errors that a user sees as one line, without a traceback."""


class UsageError(MnistbenchError):
    """An option, a configuration value or a fixture argument is invalid."""


class DataError(MnistbenchError):
    """A dataset is missing, incomplete or not the expected one."""


class RecordError(MnistbenchError):
    """A saved record cannot be read. The message names the file and the field."""


#: Most characters of an error that is quoted.
LONGEST_ERROR = 300


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, for a note of one line.

    The error may be of a user's class. A long line is cut.
    """
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001  # of its own __str__
        message = ""
    from mnistbench.core.units import cut  # here: importing the plug-in loads few modules

    return cut((message or "no message").splitlines()[0], LONGEST_ERROR)
