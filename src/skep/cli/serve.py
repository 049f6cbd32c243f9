"""`skep serve`: the server."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from skep.config.load import Loaded

GENERAL = ("config", "set_")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Flags:
    """Options of the server. A missing option comes from a variable, the file of settings, or the default."""

    store: str | None = None
    """Where messages are kept: a path, :memory: or postgresql://…; skep.db in the data folder by default."""
    data_folder: str | None = None
    """The folder of the SQLite file and of the spool, ./skep-data by default; made when it is missing."""
    host: str | None = None
    """The address or name to listen on, 127.0.0.1 by default."""
    port: int | None = None
    """The port to listen on, 6632 by default; 0 takes a free one."""
    queen_port: int | None = None
    """A second port, for clients of the message queue Queen; 0 takes a free one. Without it they are not served."""
    insecure: bool | None = None
    """Listen beyond loopback without keys: as long as the store has no key, everyone who reaches the port may do anything."""
    workers: int | None = None
    """Processes that share the port, 1 by default; more need PostgreSQL or an SQLite file."""
    drain_seconds: float | None = None
    """How many seconds a stop waits for running requests, 30 by default."""
    log_level: Literal["debug", "info", "warning", "error"] | None = None
    """The lowest level that is logged, info by default; debug logs every request."""
    log_format: Literal["auto", "console", "json"] | None = None
    """Auto, the default, is console on a terminal and json (one object per line) otherwise."""
    config: Path | None = None
    """The file of settings; skep.toml of the working folder by default, if there is one."""
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None
    """Any other setting, such as limits.page=500; may be given several times."""


def load_settings(flags: Flags) -> Loaded:
    """The settings of this run, each with its origin."""
    import os

    from skep.config.load import load

    given: dict[str, object] = {f.name: getattr(flags, f.name) for f in fields(flags) if f.name not in GENERAL}
    for text in flags.set_ or []:
        key, _, value = text.partition("=")
        given[key.strip()] = value.strip()
    return load(given, os.environ, Path.cwd(), flags.config)


def serve(flags: Flags = Flags()) -> None:
    """Serve queues over HTTP."""
    from skep.errors import SkepError
    from skep.runtime.interpreter import exit_status
    from skep.runtime.logs import configure_logs
    from skep.server.compose import warn_of_loose_secrets
    from skep.server.process import serve_alone

    try:
        loaded = load_settings(flags)
        settings = loaded.settings
        configure_logs(settings.log_level, settings.log_format)
        if loaded.secret_file is not None:
            warn_of_loose_secrets([loaded.secret_file])
        if settings.workers == 1:
            serve_alone(settings)
        else:
            from skep.server.supervisor import serve_with_workers

            sys.exit(serve_with_workers(settings))
    except SkepError as error:
        sys.stderr.write(f"skep: {error.shown}\n")
        sys.exit(exit_status(error))
