"""Patterns of grants: which names match, and which grants lie within others. No pattern can make these functions slow.

In a pattern ``*`` stands for any characters, or none. Every other character stands for itself: names are not folded, normalised or
unquoted here, as they are not where queues are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skep.errors import Code, SkepError
from skep.model.key import EVERY, Grant

GRANTS_MAX = 100
PATTERNS_MAX = 100
PATTERN_CHARACTERS = 255
STARS_MAX = 8


def matches(pattern: str, name: str) -> bool:
    """Whether a name matches a pattern."""
    first, *rest = pattern.split(EVERY)
    if not rest:
        return name == pattern
    *middle, last = rest
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    place, end = len(first), len(name) - len(last)
    for part in middle:  # the first place that fits leaves the most room for those after it
        found = name.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part)
    return True


def matches_any(patterns: Iterable[str], name: str) -> bool:
    """Whether a name matches one of the patterns."""
    return any(matches(pattern, name) for pattern in patterns)


def includes(outer: str, inner: str) -> bool:
    """Whether every name that matches ``inner`` matches ``outer``. It may wrongly say no, but never wrongly yes.

    A star of ``inner`` is replaced by a character that only a star of ``outer`` can match.
    """
    return outer in (EVERY, inner) or matches(outer, inner.replace(EVERY, "\x00"))


def is_within(grant: Grant, own: Sequence[Grant]) -> bool:
    """Whether ``own`` grants allow everything that another grant does: nobody can give rights they do not have."""
    return all(
        any(
            verb in have.verbs
            and any(includes(outer, tenant) for outer in have.tenants)
            and any(includes(outer, queue) for outer in have.queues)
            for have in own
        )
        for verb in grant.verbs
        for tenant in grant.tenants
        for queue in grant.queues
    )


def check_grants(grants: Sequence[Grant]) -> None:
    """Refuse grants that allow nothing, too many grants, and invalid patterns."""
    if not 1 <= len(grants) <= GRANTS_MAX:
        raise _unfit(f"there are 1 to {GRANTS_MAX} grants")
    for grant in grants:
        if not grant.verbs:
            raise _unfit("a grant has a verb")
        for patterns, what in ((grant.tenants, "tenants"), (grant.queues, "queues")):
            if not 1 <= len(patterns) <= PATTERNS_MAX:
                raise _unfit(f"a grant names 1 to {PATTERNS_MAX} {what}")
            for pattern in patterns:
                _check_pattern(pattern)


def _check_pattern(pattern: str) -> None:
    if not 1 <= len(pattern) <= PATTERN_CHARACTERS or not pattern.isprintable():
        raise _unfit(f"a pattern has 1 to {PATTERN_CHARACTERS} printable characters")
    if pattern.count(EVERY) > STARS_MAX:
        raise _unfit(f"a pattern has at most {STARS_MAX} stars")


def _unfit(message: str) -> SkepError:
    return SkepError(Code.INVALID_REQUEST, message)
