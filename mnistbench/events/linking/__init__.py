"""Links between the events of a trace, which times cannot be, and the names of compiled code."""
