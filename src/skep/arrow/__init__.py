"""Messages as Arrow columns: the log as Spark reads it, and staged chunks."""
