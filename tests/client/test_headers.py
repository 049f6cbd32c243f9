"""Calls whose body or answer is no JSON."""

from __future__ import annotations

import pyarrow as pa

import skep
from skep.client.exchange import Call, Request
from skep.wire.log import ARROW


def test_a_call_may_speak_arrow_both_ways(client: skep.Client) -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"payload": pa.array(['{"n":1}', '{"n":2}'])})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()

    client.run(Call(Request("POST", "/api/v1/push", body, {"queue": "q"}, headers={"Content-Type": ARROW}), bool))
    told = client.run(
        Call(Request("GET", "/api/v1/log/q", headers={"Accept": ARROW}), lambda answer: bytes(answer.body))
    )

    assert pa.ipc.open_stream(told).read_all().column("payload").to_pylist() == [b'{"n":1}', b'{"n":2}']
