"""Keyword arguments that are passed on: a word that nobody reads is an error, as with any other function."""

from __future__ import annotations

from collections.abc import Mapping


def no_others(given: Mapping[str, object], known: frozenset[str]) -> None:
    """TypeError for a word that means nothing here: a misspelt ``partition`` would put messages into another one."""
    if not given.keys() <= known:
        [first, *_] = sorted(given.keys() - known)
        raise TypeError(f"unexpected keyword argument {first!r}; there are {', '.join(sorted(known))}")
