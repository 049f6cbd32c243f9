"""The engine through its public face, on a frozen clock."""
