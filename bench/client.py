"""`skep bench client`: what the Python client itself costs.

On a server of each store it pushes, pops and acks beside the same requests by hand (`client_beside_raw`). Against a server that does
nothing it pushes single messages, beside a bare HTTP library that sends the same bytes. Rounds alternate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from pyreqwest.client import ClientBuilder, SyncClientBuilder

from bench.client_beside_raw import RATIOS, beside_raw
from bench.null_server import running_null_server
from bench.report import Report, machine, middle
from skep.client import AsyncClient, Client

IN_FLIGHT = 32
QUICK = (2_000, 3)
FULL = (10_000, 5)
"""Pushes of a round, and rounds."""
PAYLOAD = {"order": 12345, "customer": "c-17", "text": "x" * 250}
BODY = b'{"items":[{"queue":"orders","payload":{"order":12345,"customer":"c-17","text":"' + b"x" * 250 + b'"}}]}'
TARGETS = {"sync_of_bare": "-", "async_of_bare": "-", **RATIOS}
NOTES = {
    "client.sync": "pushes of one message, one after the other; at least 5,000/s expected",
    "client.async": f"pushes of one message, {IN_FLIGHT} in flight; at least 10,000/s expected",
}


async def run(stores: list[str], quick: bool) -> Report:
    """Measure the client on the stores, and against nothing."""
    report = Report("client", machine(), notes=dict(NOTES))
    await asyncio.to_thread(beside_raw, stores, quick, report)
    await beside_bare(quick, report)
    return report


async def beside_bare(quick: bool, report: Report) -> None:
    """Both clients and the bare library, in rounds that alternate."""
    pushes, rounds = QUICK if quick else FULL
    found: dict[str, list[float]] = {}
    with running_null_server() as url:
        for _ in range(rounds):
            found.setdefault("bare.sync", []).append(await asyncio.to_thread(bare_sync, url, pushes))
            found.setdefault("client.sync", []).append(await asyncio.to_thread(client_sync, url, pushes))
            found.setdefault("bare.async", []).append(await bare_async(url, pushes))
            found.setdefault("client.async", []).append(await client_async(url, pushes))
    report.rates |= {name: middle(values) for name, values in found.items()}
    report.ratios["client.sync_of_bare"] = report.rates["client.sync"] / report.rates["bare.sync"]
    report.ratios["client.async_of_bare"] = report.rates["client.async"] / report.rates["bare.async"]


def client_sync(url: str, pushes: int) -> float:
    """Pushes per second, one after the other."""
    with Client(url) as client:
        return per_second(lambda: client.push("orders", PAYLOAD), pushes)


def bare_sync(url: str, pushes: int) -> float:
    """The same bytes without the client."""
    with SyncClientBuilder().build() as client:
        return per_second(lambda: client.post(f"{url}/api/v1/push").body_bytes(BODY).build().send().bytes(), pushes)


async def client_async(url: str, pushes: int) -> float:
    """Pushes per second, several in flight."""
    async with AsyncClient(url) as client:
        return await in_flight(lambda: client.push("orders", PAYLOAD), pushes)


async def bare_async(url: str, pushes: int) -> float:
    """The same bytes without the client."""
    async with ClientBuilder().build() as client:

        async def push() -> object:
            response = await client.post(f"{url}/api/v1/push").body_bytes(BODY).build().send()
            return await response.bytes()

        return await in_flight(push, pushes)


def per_second(call: Callable[[], object], calls: int) -> float:
    """Calls per second, one after the other."""
    call()
    started = time.perf_counter()
    for _ in range(calls):
        call()
    return calls / (time.perf_counter() - started)


async def in_flight(call: Callable[[], Awaitable[object]], calls: int) -> float:
    """Calls per second, `IN_FLIGHT` at a time."""

    async def caller() -> None:
        for _ in range(calls // IN_FLIGHT):
            await call()

    await call()
    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return calls // IN_FLIGHT * IN_FLIGHT / (time.perf_counter() - started)
