"""The name that ``profile.command`` imports until it uses ``criteria``."""

from mnistbench.compare.criteria import case_threshold as plain_threshold

__all__ = ["plain_threshold"]
