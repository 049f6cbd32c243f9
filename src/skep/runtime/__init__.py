"""What a process of ours has whatever it does: its event loop, its logs, how it hears of signals, and files for its owner alone."""
