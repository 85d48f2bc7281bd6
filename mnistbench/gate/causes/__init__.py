"""What made a case slower or faster: the call paths of both sides, beside what differs of the code.

They are measured for the cases alone that were found slower or faster.
"""
