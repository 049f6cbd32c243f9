"""One request: what a handler sees of it, the route it takes, and who may take it."""
