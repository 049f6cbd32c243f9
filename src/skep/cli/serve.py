"""`skep serve`: the server."""

from __future__ import annotations

from pathlib import Path

from skep.cli.loop import run

DATA = Path("skep-data")


def serve(*, store: str | None = None, host: str = "127.0.0.1", port: int = 6632) -> None:
    """Serve queues over HTTP.

    Parameters
    ----------
    store
        Where messages are kept: a path, :memory: or postgresql://…; an SQLite file in ./skep-data by default.
    host
        The address to listen on.
    port
        The port to listen on.
    """
    from skep.server import serve as serve_store

    if store is None:
        DATA.mkdir(exist_ok=True)
        store = str(DATA / "skep.db")
    run(serve_store(store, host, port))
