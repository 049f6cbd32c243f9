"""A worker dies, or stands still."""

import random

from torture.faults.fault import BOTH, stop_past_lease
from torture.site import Site


class HitWorker:
    """Ends a process of `skep work` in the midst of a command or a delivery and starts it again, or suspends it: another one takes over."""

    name = "worker"
    description = "kill -9 of a worker, or SIGSTOP past a lease; another worker takes over"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        worker = chance.choice(site.workers)
        if chance.random() < 0.5:
            worker.kill()
            worker.start()
            return "killed a worker"
        seconds = await stop_past_lease(worker.send, chance)
        return f"stopped a worker for {seconds:.1f} s"
