"""The client's benchmark runs and reports; never how fast."""

from __future__ import annotations

import pytest

from skep import Client
from skep.bench import client
from skep.bench.null_server import request_bytes, running_null_server


def test_the_null_server_answers_pushes_as_stored() -> None:
    with running_null_server() as url, Client(url) as one:
        assert [len(one.push("orders", number).stored) for number in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("buffer", "length"),
    [
        (b"GET / HTTP/1.1\r\n", None),
        (b"GET / HTTP/1.1\r\n\r\nGET", 18),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", None),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcd", 41),
    ],
)
def test_the_null_server_tells_requests_apart(buffer: bytes, length: int | None) -> None:
    assert request_bytes(buffer) == length


async def test_both_clients_are_measured_beside_the_bare_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "QUICK", (64, 1))

    report = await client.run(quick=True)

    assert set(report.rates) == {"bare.sync", "client.sync", "bare.async", "client.async"}
    assert all(rate > 0 for rate in report.rates.values())
    assert set(report.ratios) == {"client.sync_of_bare", "client.async_of_bare"}
