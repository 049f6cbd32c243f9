"""The text of an exception: one line for a log, and the line with its traceback for the server. Both are bounded and valid UTF-8.

No exception of a function may cost the log line or the settlement: an exception whose text cannot be made, one of a
million characters, or one with a file name that is no UTF-8.
"""

from __future__ import annotations

import traceback
from types import TracebackType

LINE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 5_000
"""The most of a traceback. A longer one keeps its end, the innermost frames. Line and traceback together fit into what a server keeps (8,192)."""
PART_CHARACTERS = 1_000
"""One part of a traceback: a frame with its source line, or the exception's own text."""
TAME_CHARACTERS = 20_000
FRAMES = 25
"""Frames of each exception of a chain, the innermost."""

_OURS = ("skep.client.", "skep.worker.", "concurrent.futures.", "asyncio.")


def error_line(error: BaseException) -> str:
    """The type and the first line of the text."""
    kind = type(error).__name__
    try:
        text = str(error).strip()
    except Exception as raised:
        text = f"(its text cannot be made: {type(raised).__name__})"
    line = text.partition("\n")[0]
    return writable(shortened(f"{kind}: {line}" if line else kind, LINE_CHARACTERS))


def error_text(error: BaseException) -> str:
    """The error text for the server: the exception's line, an empty line, and its traceback."""
    return f"{error_line(error)}\n\n{traceback_text(error)}"


def traceback_text(error: BaseException) -> str:
    """The traceback without the frames of the worker; of a long one the end."""
    text = "".join(shortened(part.rstrip("\n"), PART_CHARACTERS) + "\n" for part in _parts(error)).rstrip("\n")
    return writable(text if len(text) <= TRACEBACK_CHARACTERS else "…" + text[1 - TRACEBACK_CHARACTERS :])


def is_tame(error: BaseException) -> bool:
    """Whether a log may write the traceback as it is: it is not too long, and UTF-8 can carry it."""
    text = "".join(_parts(error))
    return len(text) <= TAME_CHARACTERS and text == writable(text)


def own_frames(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame that is not the worker's; the whole of it when the worker itself raised."""
    frames = error.__traceback__
    while frames is not None and f"{frames.tb_frame.f_globals.get('__name__', '')}.".startswith(_OURS):
        frames = frames.tb_next
    return frames or error.__traceback__


def writable(text: str) -> str:
    """The text as UTF-8 can carry it. File names that are no UTF-8 bring half characters into errors, and acks go together: one
    that cannot be written would keep all the others from being said.
    """
    return text.encode("utf-8", "replace").decode()


def shortened(text: str, most: int) -> str:
    """The text, or its beginning when it is too long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _parts(error: BaseException) -> list[str]:
    return list(
        traceback.TracebackException(type(error), error, own_frames(error), limit=-FRAMES, compact=True).format()
    )
