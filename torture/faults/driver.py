"""The driver of a Spark job dies, or stands still."""

import random

from torture.faults.fault import BOTH, stop_past_lease
from torture.faults.spark import at_work, send_all
from torture.site import Site


class HitDriver:
    """Ends the driver of the Spark job in the midst of a batch and starts the job again from its checkpoint, or suspends the driver."""

    name = "driver"
    description = (
        "kill -9 of the driver of a Spark job, which begins again from its checkpoint, or SIGSTOP past a lease"
    )
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        job, when = await at_work(site, chance)
        if chance.random() < 0.5:
            job.kill_driver()
            job.start()
            return f"killed the driver {when}"
        driver = job.driver
        seconds = await stop_past_lease(lambda number: send_all(driver, number), chance)
        return f"stopped the driver {when} for {seconds:.1f} s"
