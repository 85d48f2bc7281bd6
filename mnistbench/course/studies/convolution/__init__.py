"""A convolution, computed in many ways.

Question: what can a convolution become, and what does each way cost?
Input: the sizes of a convolution (``sizes``).
Output: tensors, and for each way (``ways``) its FLOPs, its error bound and what it cannot compute.

The ways are functions to be read: ``loops`` (seven loops, the same with one loop after the other
replaced by tensors, and a matrix product) and, in ``ways``, a product of spectra, Winograd's fewer
multiplications, what a model calls, and the bounds of rounding errors. ``measurement`` measures all
ways of some convolutions, and reads which algorithm the library took.
"""
