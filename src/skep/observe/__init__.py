"""What the server tells of itself. A leaf: it knows nothing of queues but their names."""
