"""An executor of a Spark job dies, or stands still."""

import random
import signal

from torture.faults.fault import BOTH, stop_past_lease
from torture.faults.spark import at_work, send_all
from torture.site import Site


class HitExecutor:
    """Ends an executor of the Spark job, or a Python worker of it, in the midst of a batch: Spark runs its tasks again. Or suspends it."""

    name = "executor"
    description = "kill -9 of an executor of a Spark job, or of one of its Python workers, or SIGSTOP past a lease"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        job, when = await at_work(site, chance)
        executors = job.executors
        if not executors:
            return f"found no executor {when}"
        # The first one is the executor's Java, the others are Python.
        victim = executors[0] if chance.random() < 0.5 else chance.choice(executors)
        what = "an executor" if victim is executors[0] else "a Python worker of an executor"
        if chance.random() < 0.5:
            send_all([victim], signal.SIGKILL)
            return f"killed {what} {when}"
        seconds = await stop_past_lease(lambda number: send_all([victim], number), chance)
        return f"stopped {what} {when} for {seconds:.1f} s"
