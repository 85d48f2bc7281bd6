"""Decides: samples -> quantities and their differences (``statistics``) -> a verdict."""
