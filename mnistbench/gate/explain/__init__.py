"""What made a case slower or faster: the call paths of both sides, beside what differs of the code.

They are measured for the cases alone that were found slower or faster. In the order of the data:
``profiles`` chooses the cases, lets both sides measure them (``gate.processes.sides.side_paths``)
and joins what these send into profiles (``gate.samples.case_profile``); ``attribution``
divides the change of a case among functions; ``other_changes`` are those that no profile shows;
``texts`` says it in a report.
"""
