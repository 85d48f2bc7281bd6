"""Everything that needs torch: models and data, cases of ``op_benchmark``, profiles, training."""
