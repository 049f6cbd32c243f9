"""`skep spool`: see the messages that servers keep on disk while PostgreSQL is away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from skep.cli.connection import ServerOptions
from skep.cli.output import Columns, duration, print_fields, print_one, print_rows

if TYPE_CHECKING:
    from skep.engine.push.spool.inspect import SlotView
    from skep.engine.push.spool.record import Record
    from skep.wire.status import BuffersResponse

spool_app = App(
    name="spool", help="See messages kept on a server's disk: PostgreSQL was away.", help_format="plaintext"
)

Folder = Annotated[
    Path | None,
    Parameter(
        name="--data-folder", env_var="SKEP_DATA_FOLDER", help="The data folder of the server; ./skep-data by default."
    ),
]
DATA_FOLDER = Path("skep-data")


@spool_app.command
def status(*, to: ServerOptions = ServerOptions()) -> None:
    """Show the spool of the server process that answers: messages taken and not stored yet.

    For example:
        skep spool status
        skep spool status -o json | jq .spool.pending
    """
    with to.open() as client:
        print_one(to, client.buffers(), _show)


@spool_app.command
def files(data_folder: Folder = None, *, to: ServerOptions = ServerOptions()) -> None:
    """Show the spool files of a data folder; no server need run.

    For example:
        skep spool files --data-folder /var/lib/skep
    """
    from skep.engine.push.spool.inspect import look

    print_rows(to, look((data_folder or DATA_FOLDER) / "spool"), COLUMNS, empty="nothing is spooled")


@spool_app.command
def export(path: Path | None = None, /, *, data_folder: Folder = None) -> None:
    """Print the messages of a spool, or of one of its files, as lines.

    The lines are items for `skep push --items`. A message without a
    transaction id gets its message id as transaction id: if you export and
    push it twice, it is stored once. Do not push files that a server still
    drains: their messages would be stored twice.

    For example:
        skep spool export skep-data/spool/0/refused | skep push --items

    Parameters
    ----------
    path
        A file or folder of the spool; the whole spool by default.
    """
    import msgspec

    from skep.engine.push.spool.inspect import records

    for record in records(path or (data_folder or DATA_FOLDER) / "spool"):
        for item in _items(record):
            sys.stdout.write(msgspec.json.encode(item).decode() + "\n")


def _items(record: Record) -> list[dict[str, object]]:
    import base64

    from msgspec import Raw

    from skep.ids import id_text
    from skep.wire.times import to_datetime

    items = []
    for message, id_ in zip(record.batch.messages, record.batch.ids, strict=True):
        raw = message.content_type is None
        item: dict[str, object | None] = {
            "queue": message.queue.name,
            "partition": message.partition,
            "payload": Raw(message.payload) if raw else base64.b64encode(message.payload).decode(),
            "transactionId": message.transaction_id or id_text(id_),
            "traceId": None if message.trace_id is None else id_text(message.trace_id),
            "headers": None if message.headers is None else Raw(message.headers),
            "contentType": message.content_type,
            "deliverAt": None if message.deliver_at is None else to_datetime(message.deliver_at),
            "priority": message.priority or None,
        }
        items.append({name: value for name, value in item.items() if value is not None})
    return items


def _show(found: BuffersResponse) -> None:
    spool, qos0 = found.spool, found.qos0
    print_fields({
        "spool": spool.state if spool.enabled else "off",
        "pending": spool.pending,
        "flushed": spool.flushed,
        "failed": spool.failed,
        "bytes": f"{spool.bytes:,} of {spool.max_bytes:,}",
        "oldest": duration(spool.oldest_age_seconds),
        "store away for": duration(spool.away_seconds),
        "in memory (QoS 0)": f"{qos0.pending:,} pending, {qos0.flushed:,} flushed, {qos0.lost:,} lost",
    })  # fmt: skip


COLUMNS: Columns[SlotView] = {
    "slot": lambda one: one.slot,
    "in use": lambda one: one.in_use,
    "records": lambda one: one.records,
    "messages": lambda one: one.messages,
    "bytes": lambda one: one.bytes,
    "damaged": lambda one: one.damaged,
    "set aside": lambda one: one.set_aside,
    "oldest": lambda one: one.oldest_at,
}
