"""How the interpreter of a serving process runs, and the code with which it ends."""

from __future__ import annotations

import gc
import sys

from skep.errors import SkepError

SWITCH_SECONDS = 0.0005
"""How long a thread may keep the interpreter from others that want it. The thread that writes to SQLite wants it for a moment
after each statement, and with Python's own 5 ms it would wait longer for that than the statement took."""
GARBAGE_OBJECTS = 20_000
GARBAGE_ROUNDS = 20
"""The garbage collector runs after this many new objects, and looks at older objects in every 20th run. Python's own threshold is 700:
a push of a hundred messages reaches that, and hardly any object here is in a cycle."""


def tune_interpreter() -> None:
    """Make the switches between threads and the runs of the garbage collector cost little."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, GARBAGE_ROUNDS, GARBAGE_ROUNDS)


def exit_status(error: SkepError) -> int:
    """The exit code of an error: 1 when the user has to change settings; 2 when the server or its store is at fault."""
    return 1 if error.code.startswith("INVALID_") else 2
