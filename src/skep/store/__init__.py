"""The stores: one protocol, two implementations."""
