"""Spark's Python workers without most of their garbage collections.

Spark collects garbage after every task, and after every question to a data source. That walks over every object of every module: some
40 ms, more than most tasks of a small batch take. Here the collector looks only at objects that are new since the first ones.
"""

from __future__ import annotations

import gc
import sys

MODULES_STEP = 50
"""After so many more modules were loaded, their objects are set aside, too."""

_modules = 0


def set_aside() -> None:
    """Hide the objects from the garbage collector that live as long as this process, if there are many new ones."""
    global _modules
    if len(sys.modules) >= _modules + MODULES_STEP:
        gc.collect()  # before the freeze, which would keep garbage for ever
        gc.freeze()
        _modules = len(sys.modules)
