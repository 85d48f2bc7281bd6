"""The course lab: train, profile, and both in one report."""
