"""Calls whose body or answer is no JSON."""

from __future__ import annotations

import pyarrow as pa

import skep
from skep.client.exchange import ApiCall, ApiResponse, Request
from skep.client.transport import Body, SyncTransport
from skep.wire.log import ARROW


def test_a_call_may_speak_arrow_both_ways(client: skep.Client) -> None:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"payload": pa.array(['{"n":1}', '{"n":2}'])})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    body = sink.getvalue().to_pybytes()

    client.run(ApiCall(Request("POST", "/api/v1/push", body, {"queue": "q"}, headers={"Content-Type": ARROW}), bool))
    told = client.run(
        ApiCall(Request("GET", "/api/v1/log/q", headers={"Accept": ARROW}), lambda answer: bytes(answer.body))
    )

    assert pa.ipc.open_stream(told).read_all().column("payload").to_pylist() == [b'{"n":1}', b'{"n":2}']


def test_a_body_can_be_read_while_it_comes(client: skep.Client) -> None:
    client.push("q", [{"n": number} for number in range(100)])
    transport = SyncTransport(client.settings)
    asked = Request("GET", "/api/v1/log/q", headers={"Accept": ARROW, "Skep-Tenant": client.settings.tenant})

    with transport.opened(client.settings.urls[0], asked) as body:
        assert isinstance(body, Body)
        table = pa.ipc.open_stream(body).read_all()
    with transport.opened(client.settings.urls[0], asked) as body:
        assert isinstance(body, Body)
        head, rest, nothing = bytes(body.read(8)), bytes(body.read()), bytes(body.read(0))
    transport.close()

    assert table.num_rows == 100
    assert pa.ipc.open_stream(head + rest).read_all() == table
    assert nothing == b""


def test_an_error_in_place_of_a_body_is_an_answer(client: skep.Client) -> None:
    transport = SyncTransport(client.settings)
    asked = Request("GET", "/api/v1/log/nowhere", headers={"Accept": ARROW})

    with transport.opened(client.settings.urls[0], asked) as answer:
        assert isinstance(answer, ApiResponse)
        assert answer.status == 404
    transport.close()
