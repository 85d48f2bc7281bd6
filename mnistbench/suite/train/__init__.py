"""Whole training runs, in one process or as ranks.

Question: how does a whole training run proceed? Input: settings (model, dataset, epochs, batch
size, learning rate, device). Output: loss, accuracy and time of each epoch (``result``, JSON, which
imports no torch), weights and TensorBoard files.

``command`` resolves the options for this machine and this rank; ``run`` trains: ``trainer`` has
the epochs, with the learning rates of ``recipe``, ``checkpoint`` what continues a run, ``files``
what is written. ``report`` is what the command prints. ``scale`` times steps over numbers of ranks.
"""
