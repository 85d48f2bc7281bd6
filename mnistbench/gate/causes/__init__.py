"""What made a case slower or faster: the call paths of both sides, beside what differs of the code.

They are measured for the cases alone that were found slower or faster. In the order of the data:
``profiles`` chooses the cases, measures them and joins both sides; ``side_paths`` is what a side
sends; ``case_profile`` is what the file of a gate has; ``attribution`` divides the change of a case
among functions; ``texts`` says it in a report.
"""
