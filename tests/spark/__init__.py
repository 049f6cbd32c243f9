"""Source, sink and pipelines on a real Spark and a real server."""
