"""Scripts that show a slower operation by itself."""
