"""The content of a trace file: its JSON, repairs of what torch writes that is no JSON, and the names of other formats."""
