"""The worker of a spec: it pops what the app's queues hold, makes commands and deliveries of it, and settles."""
