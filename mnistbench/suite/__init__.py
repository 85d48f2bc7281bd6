"""Everything that needs torch.

``provider`` is what the gate and the plug-in ask of it; ``workload_case`` is a case of
``op_benchmark`` in the gate. The folders: ``workloads`` (models, data, the training step),
``measuring`` (a case and its profile), ``op_benchmark`` (the fixture), ``profile``, ``train`` and
``reproducers``.
"""
