"""Subcommands of ``mnistbench``, one file each, and ``arguments`` for the values of their options.

Question: what does a subcommand do with its options?
Input: the parsed command line.
Output: text on the terminal or in a file, and an exit code.

Modules are imported when their subcommand is called, and import torch inside functions only.
"""
