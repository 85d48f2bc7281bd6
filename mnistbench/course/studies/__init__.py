"""Operator studies: what operators become on this machine, and what that costs.

A package for each: ``convolution`` computes one in many ways, ``graph`` follows a program to its
schedule, ``locality`` counts the cache misses of loops, ``memory`` the bytes of a network.
``study`` has what they share; ``mnistbench study`` runs them.
"""
