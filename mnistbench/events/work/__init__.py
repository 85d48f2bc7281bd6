"""FLOPs and bytes of the operations of a trace, and the peak rates of its accelerators."""
