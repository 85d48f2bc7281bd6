"""The code that is measured: models, data, and the training step.

Question: what is run? Input: the name of a dataset, a batch size, a device and a seed. Output:
``Workload`` objects (``workload``: model, batches, loss, optimizer; ``data``: the datasets, of
which ``digits`` reads one), and ``Step`` and ``Inference`` (``step``), which run a batch.

The fast step is ``rewrite`` (modules), ``sparse_gradients`` (without the zeros of gradients) and
``adadelta`` (one pass for an update); ``loops`` is what numba compiles for them, ``compiled`` the
way there. ``ranks`` is training by several processes.

Nothing here measures or prints.
"""
