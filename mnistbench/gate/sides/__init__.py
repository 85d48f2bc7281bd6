"""What runs inside a side of the gate: its pytest session, cases, turns and measurement."""
