"""Operator studies: what operators become on this machine, and what that costs.

A package for each study: ``convolution`` computes one in many ways. ``mnistbench study`` runs them.
"""
