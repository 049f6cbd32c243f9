"""8: ten thousand webhooks posted at the same time, each twice, are each enqueued once and handed out once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.model import QueueKey
from skep.testing.server import RunningServer, running_server
from tests.webhooks import signing
from tests.webhooks.driver import SECRET, SECRETS, SIGNED, Sender

MESSAGES = 10_000
CONNECTIONS = 100
SPEC = f"""
app Flood {{
  queue Alerts {{
    message_type {{ payload: json, received_at: time }}
    ordering: per_key
    key: string(payload.incident)
    retention {{ max_depth: {MESSAGES} }}
  }}
  webhook Alert {{
    queue: Alerts
    {SIGNED}
    idempotency {{ key: payload.id }}
  }}
}}
"""


def request(number: int) -> bytes:
    body = json.dumps({"id": f"e-{number}", "incident": number % 97, "n": number}).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in signing.plain(body, SECRET).items())
    return f"POST /hook/Alert HTTP/1.1\r\nHost: skep\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


async def post_all(port: int, numbers: list[int]) -> dict[int, set[tuple[int, str]]]:
    """Post them over many connections at once; for each number the answers it got."""
    waiting = list(reversed(numbers))
    answers: dict[int, set[tuple[int, str]]] = {number: set() for number in numbers}

    async def post() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            number = waiting.pop()
            writer.write(request(number))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(length)
            answers[number].add((int(head[9:12]), body.decode()))
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(post() for _ in range(CONNECTIONS)))
    return answers


async def take_all(server: RunningServer) -> list[tuple[str, str, int]]:
    """Pop and settle until there is nothing left: partition, id and number of each message."""
    taken = []
    while deliveries := (await server.engine.pop(QueueKey("Alerts"), batch=1000)).deliveries:
        taken += [(d.partition, d.id.hex(), json.loads(d.payload)["payload"]["n"]) for d in deliveries]
        await server.engine.settle([delivery.settlement() for delivery in deliveries])
    return taken


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_8_ten_thousand_webhooks_are_each_enqueued_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "skep.db") if kind == "sqlite" else request.getfixturevalue("postgres_dsn")
    with running_server(store, environment=SECRETS) as server:
        sender = Sender(server, ManualClock())
        sender.apply(SPEC)
        # Each is posted twice, most of them while the first is still on its way.
        numbers = [number for start in range(0, MESSAGES, 50) for number in [*range(start, start + 50)] * 2]
        answers = asyncio.run(post_all(server.port, numbers))
        full = sender.signed("Alert", {"id": "one too many", "incident": 1})
        taken = server.run(take_all(server))
        sender.close()

    assert {status for answer in answers.values() for status, _ in answer} == {202}
    assert all(len(answer) == 1 for answer in answers.values())  # both posts of each got the same answer
    told = {json.loads(body)["message_id"].replace("-", "") for answer in answers.values() for _, body in answer}
    assert (full.status, full.code) == (503, "QUEUE_FULL")
    assert len(told) == len(taken) == MESSAGES
    assert {id_ for _, id_, _ in taken} == told
    assert sorted(number for _, _, number in taken) == list(range(MESSAGES))
    assert all(partition == str(number % 97) for partition, _, number in taken)
