"""Operator studies -> tables, a module for each study."""
