"""The memory of a network: what each layer keeps, and the largest sum at any time.

Question: how much memory does an iteration of a network need, and which batch still fits?
Input: a workload, a phase (``forward`` or ``step``), a batch size and a device.
Output: bytes of each layer, and the peak, predicted from shapes and measured.

``prediction`` runs an iteration on tensors without data and follows the lifetime of each storage,
``layers`` divides storages among layers, and ``measurement`` reads the profiler or the allocator,
does all of it for some cases, and searches for the largest batch size.
"""
