"""What loaders have in common: a process of their own, kept to one core so that the server has the others, and raw answers."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Coroutine
from contextlib import closing
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from skep.runtime.loop import run

T = TypeVar("T")

_LENGTH = b"content-length: "
_END = b"\r\n\r\n"


class Loader:
    """A process on the last core that runs one coroutine after the other, each in an event loop of its own."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_child, args=(there,), daemon=True)
        self._process.start()
        there.close()

    def run(self, work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        """What a coroutine makes of the arguments."""
        try:
            self._pipe.send((work, arguments))
            made, error = self._pipe.recv()
        except (EOFError, BrokenPipeError):
            made, error = None, "the loader died"
        if error is not None:
            raise RuntimeError(error)
        return made  # type: ignore[no-any-return] # what the child sent

    def close(self) -> None:
        """End the process, which has nothing to do."""
        self._pipe.close()
        self._process.join()


def apart(work: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
    """What a coroutine makes of the arguments, in a process of its own, on the last core."""
    with closing(Loader()) as loader:
        return loader.run(work, *arguments)


def _child(pipe: Connection) -> None:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[-1:])
    while True:
        try:
            work, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((run(work(*arguments)), None))
        except Exception as error:  # it is told to the parent, which raises it
            pipe.send((None, f"{type(error).__name__}: {error}"))


def taken_answer(received: bytearray) -> tuple[int, bytes] | None:
    """Status and body of the answer that the bytes are, which are taken out; None while it is not there as a whole.

    A loader asks again only when it has its answer, so nothing follows it.
    """
    end = received.find(_END)
    if end < 0:
        return None
    at = received.find(_LENGTH, 0, end)
    length = int(received[at + len(_LENGTH) : received.find(b"\r\n", at)]) if at >= 0 else 0
    if len(received) < end + len(_END) + length:
        return None
    status, body = int(received[9:12]), bytes(received[end + len(_END) :])
    received.clear()
    return status, body
