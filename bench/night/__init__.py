"""`skep bench night`: what the archive of a night costs, measured in parts and put together by a simulation."""
