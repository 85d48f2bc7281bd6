"""The content of a trace file.

Its JSON, repairs of what torch writes that is no JSON, and the names of other formats.
"""
