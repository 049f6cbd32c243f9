"""One request: the call that a handler sees, its route, and the permission that it needs."""
