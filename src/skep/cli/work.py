"""`skep work` and `skep run`: workers of an app, alone or with a server."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from skep.cli.connection import Flag
from skep.cli.serve import Flags, load_settings

Target = Annotated[
    str, Parameter(help="A spec (.skep, .toml, .json), or module:app with a skep.App that has functions.")
]
AllowPrivate = Annotated[Flag, Parameter(help="Let deliveries go to private and loopback addresses.")]


def work(
    target: Target,
    /,
    *,
    url: Annotated[str, Parameter(env_var="SKEP_URL")] = "http://127.0.0.1:6632",
    tenant: Annotated[str | None, Parameter(env_var="SKEP_TENANT")] = None,
    token: Annotated[str | None, Parameter(env_var="SKEP_TOKEN")] = None,
    allow_private: AllowPrivate = False,
    until_empty: Flag = False,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["auto", "console", "json"] = "auto",
) -> None:
    """Run a worker of an app: pop from its queues, run commands and deliveries, settle.

    For example:
        skep work orders.skep --url http://queue.internal:6632
        skep work orders:app

    Parameters
    ----------
    url
        The URL of the server. Separate several servers of one store with commas.
    tenant
        The tenant of the queues. By default all tenants, when the app's webhooks take tenants.
    token
        The key or token (sent as a bearer token).
    until_empty
        End when no message can be popped now.
    log_level
        The lowest level that is logged.
    log_format
        The log format; auto is console on a terminal, else json (one object per line).
    """
    from skep.client.settings import ClientOptions, client_settings, split_urls
    from skep.runtime.logs import configure_logs
    from skep.runtime.loop import run as run_loop
    from skep.worker.loading import load_app
    from skep.worker.working import Working, WorkOptions

    configure_logs(log_level, log_format)
    app = load_app(target)
    options: ClientOptions = {"token": token or None}
    if tenant is not None:
        options["tenant"] = tenant
    settings = client_settings(split_urls(url), options)

    async def main() -> int:
        given = WorkOptions(
            until_empty=until_empty,
            allow_private=allow_private,
            signals=True,
            tenants=None if tenant is None else [tenant],
        )
        return await Working(app.spec, app.functions, settings, given).run()

    run_loop(main())


def run(
    target: Target,
    /,
    *,
    worker_processes: int = 1,
    allow_private: AllowPrivate = False,
    flags: Flags = Flags(),
) -> None:
    """Run an app with a server of its own: serve, apply the spec, and work.

    For example:
        skep run orders.skep
        skep run orders:app --worker-processes 2

    Parameters
    ----------
    worker_processes
        The number of worker processes; 0 only serves. A process that dies is replaced.
    """
    from skep.errors import SkepError
    from skep.runtime.interpreter import exit_status
    from skep.runtime.logs import configure_logs
    from skep.server.run import run_app

    try:
        settings = load_settings(flags).settings
        configure_logs(settings.log_level, settings.log_format)
        run_app(settings, target, worker_processes, allow_private=allow_private)
    except SkepError as error:
        sys.stderr.write(f"skep: {error.shown}\n")
        sys.exit(exit_status(error))
