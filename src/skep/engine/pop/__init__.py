"""Popping: messages are handed out at once, or as soon as there are some."""
