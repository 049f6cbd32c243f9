"""`skep store`: maintenance of the store itself, while no server holds it."""

from __future__ import annotations

from cyclopts import App

from skep.cli.at_store import StoreChoice, settings_of
from skep.cli.connection import Output
from skep.cli.output import chosen, print_json, print_lines
from skep.errors import Code, SkepError

store_app = App(name="store", help="Shrink an SQLite file after messages were deleted.", help_format="plaintext")


@store_app.command
def vacuum(*, place: StoreChoice = StoreChoice(), output: Output = None) -> None:
    """Rewrite an SQLite file without its free pages, so that it shrinks. Stop the server first.

    The file stays locked until the command ends, and its folder needs room for a second copy. After that, the server gives free room
    back to the disk by itself, as it does for files that this version made. PostgreSQL needs no such command.

    For example:
        skep store vacuum
    """
    from skep.server.stores import sqlite_file
    from skep.store.sqlite.vacuum import rewrite

    file = sqlite_file(settings_of(place))
    if file is None:
        raise SkepError(
            Code.INVALID_REQUEST,
            "the store is not an SQLite file: PostgreSQL gives room back by itself (autovacuum), and its owner may run VACUUM FULL",
        )
    try:
        done = rewrite(file)
    except SkepError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        raise SkepError(
            Code.STORE_BUSY,
            f"a server has {file}, which cannot be written anew under it: stop the server first. A file of this version, or one that "
            "was vacuumed once, shrinks by itself while the server runs",
        ) from None
    if chosen(output) == "json":
        print_json(done)
    else:
        print_lines([f"{file} has {done.bytes_after:,} bytes now; it had {done.bytes_before:,}"])
