"""``mnistbench study``: a module for each study."""
