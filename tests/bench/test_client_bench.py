"""The client's benchmark runs and reports; never how fast."""

from __future__ import annotations

from uuid import UUID

import pytest

from bench import client, client_beside_raw
from bench.null_server import request_bytes, running_null_server
from bench.peers.client_line import ClientLine
from bench.peers.lines import Way
from bench.peers.skep_line import SkepLineWithIds
from bench.report import Report
from skep import Client
from tests.client.scripted import ScriptedServer, stored


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

    report = await client.run([], quick=True)

    assert set(report.rates) == {"bare.sync", "client.sync", "bare.async", "client.async"}
    assert all(rate > 0 for rate in report.rates.values())
    assert set(report.ratios) == {"client.sync_of_bare", "client.async_of_bare"}


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_the_client_is_measured_beside_the_same_requests_by_hand(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_beside_raw, "QUICK", client_beside_raw.Scale(rounds=1, seconds=0.1, turns=2))
    monkeypatch.setattr(client_beside_raw, "WARM_MESSAGES", 100)
    monkeypatch.setattr(client_beside_raw, "WARM_TURNS", 1)
    report = Report("client", {})

    client_beside_raw.beside_raw([store], True, report)

    figures = ("cycle", "latency_p50_ms", "own_cpu_us_per_cycle", "own_cpu_us_one_by_one", "server_cpu_us_per_cycle")
    lines = ("raw_without_ids", "raw", "client")
    assert set(report.rates) == {f"{figure}.{line}.{store}" for figure in figures for line in lines}
    ratios = {"client_of_raw_cycle", "client_of_raw_latency", "ids_of_none_cycle"}
    assert set(report.ratios) == {f"{ratio}.{store}" for ratio in ratios}
    assert set(client_beside_raw.RATIOS) >= {f"client_of_raw_cycle.{store}", f"client_of_raw_latency.{store}"}


async def test_the_client_and_the_requests_by_hand_push_the_same_messages() -> None:
    with ScriptedServer(stored) as server:
        way = Way("", server.url.removeprefix("http://"), "orders", 20, 300, ())
        for kind in (SkepLineWithIds, ClientLine):
            line = await kind.open(way)
            await line.push(17)
            await line.close()
    by_hand, by_client = (request.json["items"] for request in server.requests)

    for items in (by_hand, by_client):
        assert len({UUID(item.pop("transactionId")) for item in items}) == 20
    assert by_hand == by_client
