"""The processes of the sides: how the gate starts them, what both say, and what runs in them."""
