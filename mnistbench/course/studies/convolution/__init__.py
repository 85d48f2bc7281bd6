"""A convolution, computed in many ways.

Question: what can a convolution become, and what does each way cost?
Input: the sizes of a convolution (``sizes``).
Output: tensors, and for each way (``ways``) its FLOPs, its error bound and what it cannot compute.

Each way has a module, to be read: ``loops`` (seven loops, and the same with one loop after the other replaced by tensors),
``im2col`` (a matrix product), ``fourier`` (a product of spectra), ``winograd`` (fewer multiplications) and ``pytorch`` (what a
model calls). ``errors`` bounds the rounding errors, ``calls`` measures one way, ``onednn`` reads which algorithm oneDNN
took, ``run`` measures all ways of some convolutions.
"""
