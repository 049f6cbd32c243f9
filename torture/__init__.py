"""Proof of the promises under load and faults: a load with everything in it, recorded histories, and their checker. In no wheel."""
