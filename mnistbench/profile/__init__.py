"""Costs of operations: time, FLOPs and bytes, and the limits of the machine.

Question: what does each operation cost, and what could it cost?
Input: the cases to profile and the number of iterations.
Output: ``Profiled`` (``result``), one for each case, which is JSON and imports no torch.

``run`` profiles; ``costs`` counts FLOPs and bytes; ``ceilings`` measures the machine; ``first_call`` measures first calls
in processes of their own.
"""
