"""Records and comparisons -> text. Rows are built once (``rows``), a format only draws them (``terminal``)."""
