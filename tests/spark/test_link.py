"""A connection that is lost in the middle of a batch: what is left of it is asked for anew."""

from __future__ import annotations

import asyncio

import pyarrow as pa

import skep
from skep.model import LOG_CHUNK
from skep.spark.link import Link, Log
from skep.spark.options import ServerConnection
from skep.testing.server import running_server
from torture.proxy import Proxy

MESSAGES = 4 * LOG_CHUNK
PAYLOAD_BYTES = 1_000
"""So many that the stream is longer than what a client reads ahead."""


async def test_a_stream_that_is_cut_goes_on_where_it_was() -> None:
    with running_server() as server, skep.Client(server.url) as client:
        await asyncio.to_thread(_fill, client)
        async with Proxy(server.url) as proxy:
            link = Link(ServerConnection((proxy.dsn,), "default", None, 20.0))
            proxy.cut_after(None, 3 * LOG_CHUNK * PAYLOAD_BYTES)
            reading = asyncio.ensure_future(asyncio.to_thread(_read, link))
            await proxy.was_cut.wait()
            proxy.count()
            batches = await reading

    rows = pa.Table.from_batches(batches)
    assert rows.column("seq").to_pylist() == list(range(1, MESSAGES + 1))
    assert rows.column("payload").to_pylist() == [f'"{_text(number)}"'.encode() for number in range(MESSAGES)]


def _fill(client: skep.Client) -> None:
    for start in range(0, MESSAGES, 1_000):
        client.push("orders", [_text(number) for number in range(start, start + 1_000)])


def _text(number: int) -> str:
    return f"{number:0{PAYLOAD_BYTES - 2}}"


def _read(link: Link) -> list[pa.RecordBatch]:
    return list(link.read(Log(queue="orders", first=1, last=MESSAGES, columns=("seq", "payload"))))
