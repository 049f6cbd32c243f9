"""Webhooks: messages from outside, each proven by its signature, told from its repeats, and stored once."""
