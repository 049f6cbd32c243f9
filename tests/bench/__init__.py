"""The benchmarks themselves: that they run and report. Never how fast."""
