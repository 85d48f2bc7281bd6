"""What runs inside a side of the gate: cases, turns, raw samples."""
