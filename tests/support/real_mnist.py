"""Where the real MNIST is. The project does not contain it."""

import os

import pytest

#: The folder that MNISTBENCH_DATA names, or None.
REAL_MNIST = os.environ.get("MNISTBENCH_DATA")

needs_mnist = pytest.mark.skipif(
    not REAL_MNIST, reason="MNISTBENCH_DATA names no folder with MNIST/raw"
)
