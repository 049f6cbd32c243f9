"""The way out: messages are handed out at once, or when there are some."""
