"""The course: the lab, and the studies of what an operator becomes on a machine."""
