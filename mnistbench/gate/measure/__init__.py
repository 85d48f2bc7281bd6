"""Measures cases: rounds of trials, as many as the budget and the thresholds need."""
