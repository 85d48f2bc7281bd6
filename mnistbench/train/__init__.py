"""Whole training runs: ``loop`` has epochs and schedule, ``run`` implements ``mnistbench train``.

Question: how does a whole training run proceed? Input: settings (model, dataset, epochs, batch
size, learning rate, device). Output: loss, accuracy and time of each epoch (``result``, JSON, which
imports no torch), weights and TensorBoard files.
"""
