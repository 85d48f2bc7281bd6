"""Subcommands of ``mnistbench``, one file each; ``arguments``, ``saved`` and ``output`` are shared by them.

Each file has ``add_arguments(parser)`` and ``run(parsed) -> exit code``.

Question: what does a subcommand do with its options?
Input: the parsed command line.
Output: text on the terminal or in a file, and an exit code.

A module is imported when its subcommand is called, and imports torch inside functions only.
"""
