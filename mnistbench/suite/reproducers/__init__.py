"""Scripts that show a slower operation by itself.

In the order of the data: ``write`` chooses the operations and asks both sides; in the process of a
side ``side_calls`` does its job with ``capture`` and ``tensors``; ``script`` is what is written.
``command`` runs the scripts with ``run``.
"""
