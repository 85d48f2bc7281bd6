"""The kinds of quantities that are judged: what a time or a size is of.

``--accept`` takes some of them as the name of a quantity.
"""

from __future__ import annotations

#: The median of the iterations of a case.
ITERATION = "iteration"

#: The mean of the iterations of a case. Only a gate judges it.
MEAN = "mean"

#: A single operation.
OPERATION = "operation"

#: Operations that replace each other: those of one place that only one side has. Their sums are
#: compared; in a gate only if both are large.
REPLACED = "replaced"

#: Such operations that a gate judges by the share of the case that they add.
ADDED = "added"

#: What is no operation: time outside operations, runtime calls, unattributed kernels.
OUTSIDE_KIND = "outside"

#: The small operations of a case together.
OTHER = "other"

#: Name of the quantity of this kind that has the small functions of Python.
OTHER_FUNCTIONS = "other functions"

#: CPU time that a process spends once. Only a gate judges it.
ONCE = "once"

#: Peak memory of a process. Only a gate judges it.
MEMORY = "memory"
