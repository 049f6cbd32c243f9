"""The body of a client process: a step for each frame on stdin, and every call on stdout before it is made."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import sys
from typing import Any

from skep.runtime.loop import run
from torture.caller import Caller
from torture.client_process import LENGTH_BYTES, ClientOrder, Told, frame
from torture.history import Call
from torture.load_client import LoadClient
from torture.queues import Queues
from torture.steps import do_step


class Telling:
    """Writes what a caller does to stdout."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._numbers = itertools.count()
        self._begun: dict[int, Call] = {}
        caller.begin, caller.end = self._begin, self._end

    def _begin(self, call: Call) -> int:
        number = next(self._numbers)
        self._begun[number] = call
        self.tell()
        return number

    def _end(self, number: int) -> None:
        del self._begun[number]

    def tell(self, step: str | None = None) -> None:
        ended, self._caller.calls[:] = list(self._caller.calls), []
        write(frame(Told(ended, list(self._begun.values()), step)))


def write(data: bytes) -> None:
    """All of it, before the next call is made."""
    while data:
        data = data[os.write(1, data) :]


def read() -> Any:
    head = sys.stdin.buffer.read(LENGTH_BYTES)
    if len(head) < LENGTH_BYTES:
        return None
    return pickle.loads(sys.stdin.buffer.read(int.from_bytes(head)))  # noqa: S301 - of the process that started us


async def main() -> None:
    order: ClientOrder = read()
    caller = Caller(order.urls, order.name)
    telling = Telling(caller)
    queues = Queues.of_round(
        order.round, order.bulk, is_shared=True, may_lose=order.may_lose, has_spark=order.has_spark
    )
    client = LoadClient(caller, queues, order.seed)
    while (what := read()) is not None:
        if what[0] == "step":
            telling.tell(await do_step(client, what[1]))
        else:
            await client.push_meanwhile(*what[1:])
            telling.tell("meanwhile")
    await caller.close()


if __name__ == "__main__":
    logging.getLogger("skep").setLevel(logging.CRITICAL)
    run(main())
