"""What faults of Spark share: they wait for the job to be at work, and hit several processes at once."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from torture.site import Site
from torture.spark_process import SparkProcess
from torture.spark_round import COPY_SECONDS, revive

IDLE_SECONDS = 5.0
"""A job that begins no batch for so long has nothing left to copy."""
LONGEST_DELAY_SECONDS = 0.5
"""A fault comes at any moment of a batch: this is about what one takes."""
LOOK_SECONDS = 0.005


async def at_work(site: Site, chance: random.Random) -> tuple[SparkProcess, str]:
    """The job once it has done something since the last hit and is in the midst of a batch, or has nothing to do; and which of the two."""
    job = site.spark
    assert job is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(COPY_SECONDS):
            idle_since = time.monotonic()
            while not (job.is_in_a_batch and job.has_gone_on) and time.monotonic() < idle_since + IDLE_SECONDS:
                revive(job)
                if job.is_in_a_batch or not job.is_running:
                    idle_since = time.monotonic()
                await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(chance.uniform(0.0, LONGEST_DELAY_SECONDS))
    job.hit()
    return job, "in a batch" if job.is_in_a_batch else "between batches"


def send_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)
