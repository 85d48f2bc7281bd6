"""``python -m mnistbench`` is the ``mnistbench`` command."""

import sys

from mnistbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
