"""torch.compile: how it is asked for, and what it made of a case. Imports no torch."""
