"""A server: its composition (`compose`), one process, several processes under a supervisor, and `skep run`.

Its first names are loaded when they are first used: a process that only looks at the signals or the doctor loads no engine.
"""

from typing import TYPE_CHECKING

from skep._lazy import lazy_names

if TYPE_CHECKING:
    from skep.server.compose import open_engine, open_server
    from skep.server.stores import open_store

__all__ = ["open_engine", "open_server", "open_store"]

if not TYPE_CHECKING:  # or every misspelt name would have a type
    __getattr__, __dir__ = lazy_names(
        globals(), dict.fromkeys(__all__, "skep.server.compose") | {"open_store": "skep.server.stores"}
    )
