"""The demo: a shop whose orders run through a server of its own, with the mishaps that a queue is there for."""
