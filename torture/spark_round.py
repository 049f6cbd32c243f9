"""The part of a round that is about Spark: a job copies one queue into another, and what it copied is looked at."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from torture import looks
from torture.caller import Caller
from torture.lives import PAUSE_SECONDS, changed, is_drained, until_done, until_seen
from torture.queues import Queues
from torture.site import Site
from torture.spark_process import LOCAL, WITH_EXECUTORS, SparkProcess

COPY_SECONDS = 600.0
"""How long the job may take to copy what is left; a start of Spark alone takes a minute on a busy machine."""
MOST_STARTS = 20


class RoundSpark:
    """The Spark job of one round."""

    def __init__(self, site: Site, queues: Queues, *, has_executors: bool) -> None:
        self._site = site
        self._source, self._sink = (queues.streamed[kind] for kind in ("streamed", "copies"))
        self._bulk = queues.bulk
        self._master = WITH_EXECUTORS if has_executors else LOCAL
        self._folder = site.folder / f"spark{queues.number}"

    async def begin(self, caller: Caller) -> None:
        """Make the queues, start the job, and return when it runs: so that the load and its faults meet it at work."""
        for queue in (self._source, self._sink):
            await until_done(partial(caller.again.configure, queue.name, **changed(queue)))
        urls = ",".join(self._site.urls())
        names = (self._source.name, self._sink.name)
        job = SparkProcess(urls, *names, self._folder, master=self._master, bulk=self._bulk)
        self._site.spark = job
        job.start()
        while not job.is_running:
            revive(job)
            await asyncio.sleep(PAUSE_SECONDS)

    async def drain(self, caller: Caller) -> None:
        """Let the job copy everything, and end it; what it has not copied in time is judged to be lost."""
        job = self._site.spark
        assert job is not None
        deadline = time.monotonic() + COPY_SECONDS
        while not await self._is_copied(caller) and time.monotonic() < deadline:
            revive(job)
            await asyncio.sleep(PAUSE_SECONDS)
        job.end()

    async def _is_copied(self, caller: Caller) -> bool:
        stats = await looks.look_at_figures(caller, self._source.key)
        return stats is not None and (stats.last_seq == 0 or is_drained(stats))

    async def look(self, caller: Caller) -> None:
        """Look at the queue, and at its copies."""
        source = self._source.key
        await until_seen(caller, lambda: looks.look_at_log(caller, source))
        await until_seen(caller, lambda: looks.look_at_copies(caller, source, self._sink.key))

    def stop(self) -> None:
        if self._site.spark is not None:
            self._site.spark.end()
            self._site.spark = None


def revive(job: SparkProcess) -> None:
    """Start the job again when it has ended: its query fails when a call gets no answer for long, or a task failed too often."""
    if job.has_ended:
        if job.starts == MOST_STARTS:
            raise RuntimeError(f"the Spark job ended by itself: {job.last_words()}")
        job.start()
