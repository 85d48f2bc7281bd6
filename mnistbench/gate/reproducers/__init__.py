"""Scripts that show a slower operation by itself.

``write`` chooses the operations and writes the files. In the process of a side, ``capture``
describes their calls, and ``tensors`` the tensors of those; ``script`` makes a script of the
descriptions. ``run`` runs a script on both sides, for ``mnistbench reproduce`` (``command``).
"""
