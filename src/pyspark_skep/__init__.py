"""Spark looks for modules whose name begins so, and registers what they export: `format("skep")` needs nothing else."""

from skep.spark.data_source import SkepDataSource as DefaultSource

__all__ = ["DefaultSource"]
