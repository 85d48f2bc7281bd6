"""The code that is measured: models, data, and the training step.

Question: what is run? Input: the name of a dataset, a batch size, a device and a seed. Output:
``Workload`` objects (model, batches, loss, optimizer), and ``Step`` and ``Inference``, which run a
batch.

Nothing here measures or prints.
"""
