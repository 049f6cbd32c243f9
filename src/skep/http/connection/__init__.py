"""Connections: the listener, the HTTP protocol, and bounds on everything that a client can make the server hold."""
