"""Benchmarks: ratios to a ceiling and to a baseline measured in the same run. `skep bench` runs them."""
