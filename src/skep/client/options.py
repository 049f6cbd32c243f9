"""Keyword arguments that are passed on: an unknown one is an error, as with any other function."""

from __future__ import annotations

from collections.abc import Mapping


def no_others(given: Mapping[str, object], known: frozenset[str]) -> None:
    """TypeError for an unknown argument: with a misspelt ``partition``, messages would go into another partition."""
    if not given.keys() <= known:
        [first, *_] = sorted(given.keys() - known)
        raise TypeError(f"unexpected keyword argument {first!r}; there are {', '.join(sorted(known))}")
