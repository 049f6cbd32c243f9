"""`skep version`."""

from __future__ import annotations

import sys

import skep


def version() -> None:
    """Print the version."""
    sys.stdout.write(skep.__version__ + "\n")
