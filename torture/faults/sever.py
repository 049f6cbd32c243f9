"""The connections between server and PostgreSQL break."""

import random

from torture.faults.cut import cut_somewhere
from torture.faults.slow import slow_for_a_while
from torture.site import Site, StoreName


class Sever:
    """Cuts the server's connections to PostgreSQL at any byte, so that the answer to a COMMIT is lost; or slows them down; or loses them without a word."""

    name = "sever"
    description = "connections between server and PostgreSQL cut at any byte, slow, or lost without a word"
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = False
    takes_pushes = False
    layers = ("wire",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        proxy = site.wire
        kind = chance.choice(("cut", "cut", "cut", "slow", "silent"))
        if kind == "cut":
            times = chance.randint(1, 4)
            return "cut PostgreSQL off " + ", ".join([await cut_somewhere(proxy, chance) for _ in range(times)])
        if kind == "slow":
            return f"delayed PostgreSQL {await slow_for_a_while(proxy, chance)}"
        proxy.abandon()
        return "lost all connections to PostgreSQL without a word"
