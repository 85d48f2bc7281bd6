"""From program to schedule.

What PyTorch makes of ``x * y + z``, or of the training step of a workload.

Question: which graphs, which code and which sequence of operations does a program become, and what
is compiling worth? Input: a program (``programs``): its forward pass, its backward pass, and the
update of its weights. Output: its graphs, the kernels of its generated code, the order of its
operations, and times, eager and compiled.

``compiled`` captures the forward graph and the joint graph, compiles the program, keeps the
generated code, and reads which operations the code fuses. ``steps`` counts the operations of eager
execution, times eager and compiled steps in turn, and records the order of operations. ``loading``
measures how much of loading with workers overlaps with compute. ``measurement`` does all of this,
with the empty caches that ``study`` prepares before torch is imported.
"""
