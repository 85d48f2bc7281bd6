"""Surveys both sides: which cases there are, what each runs, and which of them are affected."""
