"""The course.

The lab, what a class does with it, and the studies of what an operator becomes on a machine.
"""
