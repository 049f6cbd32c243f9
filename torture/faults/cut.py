"""Connections break."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.proxy import Proxy
from torture.site import Site

MOST_BYTES = 4_000
PATIENCE_SECONDS = 0.5


class Cut:
    """Cuts all connections after so many bytes of a request or an answer: before the commit, or after it, when the answer is lost."""

    name = "cut"
    description = "connections cut at any byte of requests or answers, so that answers are lost after the commit"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        return f"cut connections {await cut_somewhere(chance.choice(site.proxies), chance)}"


async def cut_somewhere(proxy: Proxy, chance: random.Random) -> str:
    """Cut all connections at some byte; at which."""
    size = chance.randrange(MOST_BYTES)
    is_answer = chance.random() < 0.7
    proxy.was_cut.clear()
    proxy.cut_after(*((None, size) if is_answer else (size, None)))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await proxy.was_cut.wait()
    except TimeoutError:
        pass
    finally:
        proxy.count()
    proxy.cut()
    return f"after {size} bytes of {'answers' if is_answer else 'requests'}"
