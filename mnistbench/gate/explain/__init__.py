"""What made a case slower or faster: the call paths of both sides, beside what differs of the code.

They are measured for the cases alone that were found slower or faster. In the order of the data:
``profiles`` chooses the cases, lets both sides measure them and joins what these send;
``side_paths`` measures in the process of a side; ``case_profile`` is what is sent and saved;
``attribution`` divides the change of a case among functions; ``texts`` says it in a report.
"""
