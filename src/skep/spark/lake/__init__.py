"""The lake: a table of all messages as Parquet, Delta or Iceberg, and tables that are computed from them, below one URI."""
