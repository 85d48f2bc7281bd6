"""``mnistbench study``: measure what an operator becomes on this machine."""

from __future__ import annotations

import argparse
from importlib import import_module

#: Study -> its line of help. Its package beside this module has the same name.
STUDIES = {
    "convolution": "compute a convolution in many ways: FLOPs, bytes, errors, and the algorithm that the library takes",
    "locality": "run loops in several orders: misses of simulated caches, measured times, and where they disagree",
    "memory": "predict the memory of a network from shapes, layer by layer, measure it, and find the largest batch that fits",
    "graph": "follow a program to its schedule: graphs, generated code and fusions, eager and compiled times, loading",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the studies and their options."""
    subparsers = parser.add_subparsers(title="studies", required=True, metavar="STUDY")
    for name, text in STUDIES.items():
        module = import_module(f"mnistbench.course.studies.{name}.command")
        subparser = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:])
        module.add_arguments(subparser)
        subparser.set_defaults(run_study=module.run)


def run(parsed: argparse.Namespace) -> int:
    """Run the study; return 0.

    Raises:
        MnistbenchError: an option cannot be used, or something cannot be measured.
    """
    return int(parsed.run_study(parsed))
