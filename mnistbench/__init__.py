"""Which PyTorch operation got slower: a pytest-benchmark suite with operation tables on every record.

Importing this package imports neither torch nor pytest: pytest loads the plug-in of every installed package.
"""

__version__ = "0.1.0"
