"""Metrics of the server. The package is a leaf of the imports: it knows only the names of queues."""
