"""Costs of operations: time, FLOPs and bytes, and the ceilings of the machine.

Question: which time, FLOPs and bytes does each operation have, and how close is it to the ceilings?
Input: the cases to profile and the number of iterations.
Output: ``Profiled`` (``result``), one for each case, which imports no torch.

``run`` profiles, also as one of several ranks; ``counting`` counts FLOPs and bytes; ``ceilings``
measures the machine; ``first_call`` measures first iterations in new processes, which are forked
from a process that has imported ``preloaded``. ``command`` is ``mnistbench profile``, and
``report`` is what it shows.
"""
