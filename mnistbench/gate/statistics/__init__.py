"""From raw samples to a verdict, as pure functions."""
