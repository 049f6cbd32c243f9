"""What an object keeps in memory, counted."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from types import FrameType, FunctionType, ModuleType

NOT_ENTERED = (ModuleType, type, FrameType, asyncio.AbstractEventLoop)
"""Objects through which everything else in the process is reached."""
DRIVER = "asyncpg"
"""Its connections keep statements that they have prepared, a bounded number each."""


def census(root: object) -> Counter[str]:
    """How many objects of each type are reached from one."""
    gc.collect()
    seen = {id(root)}
    found = [root]
    for one in found:
        for referent in _referents(one):
            if id(referent) not in seen:
                seen.add(id(referent))
                found.append(referent)
    return Counter(type(one).__qualname__ for one in found)


def _referents(found: object) -> Iterator[object]:
    """What an object holds; of a function not the whole module that it is from."""
    if isinstance(found, FunctionType):
        yield from (found.__closure__, found.__defaults__, found.__dict__)
    elif not isinstance(found, NOT_ENTERED) and not type(found).__module__.startswith(DRIVER):
        yield from gc.get_referents(found)
