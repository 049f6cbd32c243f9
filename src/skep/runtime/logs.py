"""Logs: on stderr, as lines for people or as one JSON object per line.

All logs go through one handler, also those of uvicorn, asyncio and other libraries. No payload, header or token is ever logged, and a
traceback shows no local variables, since they may hold some.
"""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from skep.config import LogFormat, LogLevel

_TALKATIVE = ("uvicorn", "uvicorn.error", "asyncio")


def configure_logs(level: LogLevel, format_: LogFormat) -> None:
    """Set up logging for this process."""
    stream = sys.stderr
    as_json = format_ == "json" or (format_ == "auto" and not stream.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]
    last: Processor = (
        _json_line() if as_json else structlog.dev.ConsoleRenderer(colors=stream.isatty(), timestamp_key="time")
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _no_colours],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _TALKATIVE:
        # At info uvicorn logs its own start and stop, which we log in our own words.
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else max(logging.WARNING, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _json_line() -> Processor:
    def ordered(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:  # noqa: ARG001 - structlog's shape
        first = {name: event.pop(name) for name in ("time", "level", "event", "logger") if name in event}
        return {**first, **event}

    render = structlog.processors.JSONRenderer()

    def line(logger: WrappedLogger, method: str, event: EventDict) -> str | bytes:
        return render(logger, method, ordered(logger, method, event))

    return line


def _no_colours(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:  # noqa: ARG001 - structlog's shape
    """Drop the second copy of a message, which uvicorn adds with colours in it."""
    event.pop("color_message", None)
    return event
