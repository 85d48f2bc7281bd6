"""The classroom: what students predict before a lab, and how fast they make a training step after it."""
