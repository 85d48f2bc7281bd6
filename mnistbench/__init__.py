"""Which PyTorch operation got slower: a pytest-benchmark suite with operation tables on every record.

Importing this package imports neither torch nor pytest: pytest loads the plug-in of every installed package.

PYTEST_DONT_REWRITE: without this word pytest warns where a conftest.py imports mnistbench before the plug-in is loaded.
"""

__version__ = "0.1.0"
