"""8: ten thousand webhooks posted at the same time, each twice, are each enqueued once and processed once, from POST to event."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import skep
from skep.clock import ManualClock
from skep.ids import id_text
from skep.model import QueueKey
from skep.model.record import EntityKey
from skep.spec import load
from skep.testing.server import RunningServer, running_server
from tests.webhooks import signing
from tests.webhooks.driver import SECRET, SECRETS, SIGNED, Sender

MESSAGES = 10_000
CONNECTIONS = 100
INCIDENTS = 97
SPEC = f"""
app Flood {{
  queue Alerts {{
    message_type {{ payload: json, received_at: time }}
    ordering: per_key
    key: string(payload.incident)
    retention {{ max_depth: {MESSAGES} }}
    map_to: command Incident.Note {{
      incident: string(payload.incident)
      n: int(payload.n)
    }}
  }}
  entity Incident {{
    id: input.incident
    state {{ alerts: int = 0, sum: int = 0 }}
    command Note {{
      input {{ incident: string, n: int }}
      emits Noted {{ n: input.n }}
    }}
    event Noted {{ alerts: state.alerts + 1, sum: state.sum + event.n }}
  }}
  webhook Alert {{
    queue: Alerts
    {SIGNED}
    idempotency {{ key: payload.id }}
  }}
}}
"""


def request(number: int) -> bytes:
    body = json.dumps({"id": f"e-{number}", "incident": number % INCIDENTS, "n": number}).encode()
    lines = "".join(f"{name}: {value}\r\n" for name, value in signing.plain(body, SECRET).items())
    return f"POST /hook/Alert HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


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


async def look(server: RunningServer) -> list[tuple[int, str, int]]:
    """What became of the messages: incident, the message's id, and the number in its event; each state is held to its events."""
    found = []
    for incident in range(INCIDENTS):
        key = EntityKey("Incident", str(incident))
        events = await server.engine.records.entity_events(key, limit=1_000)
        numbers = [json.loads(event.data)["n"] for event in events]
        state = json.loads((await server.engine.records.entity(key)).state)
        assert state == {"alerts": len(numbers), "sum": sum(numbers)}
        found += [(incident, id_text(event.cause), n) for event, n in zip(events, numbers, strict=True) if event.cause]
    return found


async def work_while_more_come(url: str, port: int, numbers: list[int]) -> tuple[int, dict[int, set[tuple[int, str]]]]:
    """Let a worker do all there is, while repeats come in."""
    app = skep.App(load(SPEC, "flood.skep"))
    posting = asyncio.create_task(post_all(port, numbers))
    done = await app.work_async(url, until_empty=True)
    answers = await posting
    async with asyncio.timeout(120):
        while done < MESSAGES:  # a pop that meets a chore of the server may find nothing
            done += await app.work_async(url, until_empty=True)
    return done, answers


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def test_ten_thousand_webhooks_are_each_enqueued_once_and_processed_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "skep.db") if kind == "sqlite" else request.getfixturevalue("postgres_dsn")
    with running_server(store, environment=SECRETS) as server:
        sender = Sender(server, ManualClock())
        sender.apply(SPEC)
        # The even ones are posted twice, most of them while the first is still on its way; the odd ones again later.
        numbers = [
            n for start in range(0, MESSAGES, 50) for n in [*range(start, start + 50), *range(start, start + 50, 2)]
        ]
        answers = asyncio.run(post_all(server.port, numbers))
        full = sender.signed("Alert", {"id": "one too many", "incident": 1})
        done, late = asyncio.run(work_while_more_come(server.url, server.port, [*range(1, MESSAGES, 2)]))
        processed = server.run(look(server))
        stats = server.run(server.engine.browse.queue_stats(QueueKey("Alerts")))
        sender.close()

    assert {status for answer in answers.values() for status, _ in answer} == {202}
    assert all(len(answer) == 1 for answer in answers.values())  # both posts of each got the same answer
    assert all(late[number] == answers[number] for number in late)
    assert (full.status, full.code) == (503, "QUEUE_FULL")
    told = {json.loads(body)["message_id"] for answer in answers.values() for _, body in answer}
    assert len(told) == len(processed) == MESSAGES
    assert {id_ for _, id_, _ in processed} == told
    assert sorted(n for _, _, n in processed) == list(range(MESSAGES))
    assert all(incident == n % INCIDENTS for incident, _, n in processed)
    assert (done, stats.depth) == (MESSAGES, 0)
