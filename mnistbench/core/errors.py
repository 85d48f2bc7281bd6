"""What can go wrong by a user's hand: each error is one line that says what was wrong and what to do."""


class MnistbenchError(Exception):
    """Base of every error that ends in one line for the user instead of a traceback."""


class UsageError(MnistbenchError):
    """An option, a configuration value or a fixture argument that cannot be used."""


class DataError(MnistbenchError):
    """A dataset that is missing, incomplete or not the one it claims to be."""


class RecordError(MnistbenchError):
    """A saved record that cannot be read: names the file and the field."""
