"""The commands ``gate``, ``judge`` and ``bisect``."""
