"""Scaling of a training step over ranks: one process for each rank, as torchrun starts them.

Question: how much faster are N ranks than one, and how much of a step is communication? Input:
``Settings``: the numbers of ranks, the batch, the model. Output: ``Scaling`` (``result``): raw
times of every step on every rank; ``report`` makes a table, a figure and JSON of them.

``command`` starts a launch for each number of ranks; ``worker`` is the program of one rank, which
alone imports torch.
"""
