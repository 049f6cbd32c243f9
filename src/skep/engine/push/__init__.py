"""The ways of a push: stored at once, buffered (QoS 0), queued as an operation (202), or spooled."""
