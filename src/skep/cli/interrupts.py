"""How commands are ended: most by Ctrl-C at once, also while they wait for an answer, and those that run for long in order.

Python's own handler runs only once a call into native code returns, and a request that waits is such a call. So a thread is
told of the signal too, and ends the process when the main thread did not.
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
"""So long the main thread has to end in order, say to take a progress bar away."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """A terminal that closes and a polite kill end it as Ctrl-C does: with everything taken away."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a signal handler
        raise KeyboardInterrupt

    # What is ignored stays so: `nohup` means that a terminal may close.
    heeded = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    with heard_by(interrupt, heeded):
        yield


def end_at_once(code: int = INTERRUPTED) -> None:
    """From here on Ctrl-C ends the process with this exit code, whatever it waits for."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # whoever started us does not want it to
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_end, args=(reader, code), daemon=True).start()


def _end(reader: int, code: int) -> None:
    while os.read(reader, 1) != bytes([signal.SIGINT]):
        pass
    time.sleep(GRACE_SECONDS)
    os._exit(code)
