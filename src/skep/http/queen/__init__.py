"""A door for clients of the message queue Queen, version 0.15: it translates their calls, and has no queue logic of its own.

`docs/queen.md` has the table of the routes. The door has a port of its own (`queen_port`), since the paths are those of our API.
"""
