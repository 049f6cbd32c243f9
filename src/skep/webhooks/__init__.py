"""Webhooks: messages from outside. Each is verified by its signature, deduplicated, and stored once."""
