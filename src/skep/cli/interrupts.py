"""How signals end commands: most commands end at once on Ctrl-C, also while they wait for an answer; long ones end in order.

Python's own handler runs only once a call into native code returns, and a waiting request is such a call. So a thread
hears the signal too, and ends the process when the main thread has not ended it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from skep.cli.exits import INTERRUPTED
from skep.runtime.signals import heard_by

GRACE_SECONDS = 0.3
"""The time that the main thread has to end in order, for example to remove a progress bar."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP (a closed terminal) end the ``with`` as Ctrl-C does, with all its cleaning up."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a signal handler
        raise KeyboardInterrupt

    # An ignored signal stays ignored: under `nohup` a terminal may close.
    heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    with heard_by(interrupt, heeded):
        yield


def end_at_once(code: int = INTERRUPTED) -> None:
    """From here on Ctrl-C ends the process with this exit code, whatever it waits for."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # Ctrl-C is ignored, or has another handler
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end, args=(reader, code), daemon=True).start()


def _end(reader: int, code: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(GRACE_SECONDS)
    os._exit(code)
