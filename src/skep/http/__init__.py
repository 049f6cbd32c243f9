"""The engine over HTTP: routes, their limits, and how errors look. Nothing below this package knows HTTP."""
