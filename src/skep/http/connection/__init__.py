"""One connection: what is listened on, the protocol that is spoken, and bounds on everything its client can make the server hold."""
