"""Messages as columns: the log as Spark reads it, and chunks that are staged."""
