"""Environments: ``packages`` lists what a new one gets, ``uv`` starts uv, ``store`` makes, lists and removes environments.

Question: which two environments are compared, and how are they made?
Input: the installed packages, and requirements such as ``torch==2.13.0``.
Output: a folder with an interpreter, in the user's cache.

Nothing here imports torch.
"""
