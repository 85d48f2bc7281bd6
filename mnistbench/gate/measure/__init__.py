"""Measures cases: rounds of launches, as many as the budget and the thresholds need."""
