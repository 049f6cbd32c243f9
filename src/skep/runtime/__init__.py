"""Parts of any process: its event loop, logs, signals and private files, checks of its machine, and rate limits."""
