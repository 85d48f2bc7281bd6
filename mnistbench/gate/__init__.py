"""``mnistbench gate``: base and working tree measured together, launch by launch, and judged by a permutation test.

From the outside in: ``run`` is the flow; ``snapshot`` copies the two trees; ``launcher`` starts processes; ``launch`` is
what runs in one, with ``sides`` for the two trees' code and ``clocks`` for what measures; ``samples`` is what it leaves;
``decision`` makes the verdict of samples alone.
"""
