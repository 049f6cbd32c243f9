"""Deliveries that are CloudEvents, read by the CNCF's SDK: events that came in go out unchanged, and other messages as sound events."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from urllib.request import Request, urlopen

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_http_event, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks.webhooks import Webhook

from tests.worker.place import Place
from tests.worker.receiver import Received, receiver

PLACED = {"specversion": "1.0", "id": "1001", "source": "/shop", "type": "com.example.placed"}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "whsec_" + base64.b64encode(b"a secret of ours, and of yours").decode()
MODES = ("binary", "structured")
each_mode = pytest.mark.parametrize("mode", MODES)


async def delivered(place: Place, mode: str, *messages: HTTPMessage, **pushed: Any) -> list[Received]:
    """What a receiver gets of events that were sent to a queue, or of one message that was pushed natively."""
    async with receiver() as there:
        app = place.app(f"""
        app Out {{
          queue Out {{
            deliver: "http://127.0.0.1:{there.port}/in" {{
              headers {{ "Content-Type": "text/odd" }}
              secret_env: "SECRET"
              cloudevents: {mode}
            }}
          }}
        }}
        """)
        for one in messages:
            headers = {"content-type": "application/json", "Skep-Tenant": place.client.settings.tenant, **one.headers}
            assert send(f"{place.url}/api/v1/events/Out", one.body, headers) == 201
        if pushed:
            place.client.push("Out", pushed.pop("payload"), **pushed)
        count = len(messages) or 1
        await place.work(app, at_least=count, environment={"SECRET": SECRET})
    assert len(there.received) == count
    for got in there.received:
        if mode == "structured":  # what verifies reads the body as JSON
            Webhook(SECRET).verify(got.body, got.headers)
        assert got.headers.get("content-type") != "text/odd"
    return there.received


def send(url: str, body: bytes, headers: dict[str, str]) -> int:
    """The status of the answer to an event."""
    with urlopen(Request(url, body, headers)) as answer:
        return int(answer.status)


def event_of(mode: str, got: Received) -> BaseCloudEvent:
    """The event that the SDK sees."""
    assert any(name.startswith("ce-") for name in got.headers) is (mode == "binary")
    return from_http_event(HTTPMessage(got.headers, got.body))


@each_mode
@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
@pytest.mark.parametrize(
    ("kind", "data"),
    [("application/json", {"total": 99.5, "to": "Zoë"}), ("application/vnd.shop+json", {"a": None}), ("image/png", b"\xff\x00")],
)  # fmt: skip
async def test_an_event_goes_out_as_it_came_in(
    place: Place, mode: str, write: Any, kind: str, data: dict[str, Any] | bytes
) -> None:
    attributes = {
        **PLACED, "subject": 'Zoë "Z" 100%41 😀', "time": datetime(2026, 1, 31, 12, tzinfo=UTC), "datacontenttype": kind,
        "partitionkey": "customer-42", "comexampleextension": "a b", "traceparent": PARENT, "tracestate": "a=1",
    }  # fmt: skip
    [got] = await delivered(place, mode, write(CloudEvent(attributes, data)))

    event = event_of(mode, got)
    assert event.get_attributes() == attributes
    found = event.get_data()
    assert (json.loads(found) if isinstance(found, bytes) and isinstance(data, dict) else found) == data


@each_mode
async def test_data_and_its_absence_go_out_as_they_came_in(place: Place, mode: str) -> None:
    given: list[dict[str, Any]] = [{}, {"data": None}, {"data": "text"}, {"data": "a", "datacontenttype": "text/plain"}]
    events = [json.dumps(PLACED | {"id": str(number)} | one).encode() for number, one in enumerate(given)]
    sent = [HTTPMessage({"content-type": "application/cloudevents+json"}, event) for event in events]
    got = await delivered(place, mode, *sent)

    if mode == "structured":
        expected = [
            *(json.loads(event) for event in events[:3]),
            PLACED | {"id": "3", "datacontenttype": "text/plain", "data_base64": "YQ=="},
        ]
        assert [json.loads(one.body) for one in got] == expected
    else:
        assert [one.body for one in got] == [b"", b"null", b'"text"', b"a"]
        assert [one.headers.get("content-type") for one in got] == [
            None,
            "application/json",
            "application/json",
            "text/plain",
        ]


@each_mode
async def test_a_native_message_is_a_sound_event(place: Place, mode: str) -> None:
    [got] = await delivered(place, mode, payload={"n": 1}, partition="Zoë 1", headers={"mine": "x"}, transaction_id="t")

    event = event_of(mode, got)
    [stored] = place.client.messages("Out")
    assert event.get_attributes() == {
        "specversion": "1.0", "id": str(stored.id), "source": f"/tenants/{place.client.settings.tenant}/queues/Out", "type": "skep.message",
        "time": stored.created_at, "subject": "Zoë 1", "partitionkey": "Zoë 1", "datacontenttype": "application/json",
    }  # fmt: skip
    assert got.headers["webhook-id"] == str(stored.id)


@each_mode
async def test_headers_of_a_native_message_are_attributes_where_they_are_sound(place: Place, mode: str) -> None:
    headers = {
        "ce-type": "com.example.mine", "ce-source": "not a URI", "ce-time": "soon", "ce-subject": "a\r\nce-evil: 1", "ce-Odd": "1",
        "ce-my-own": "1", "ce-": "1", "ce-data": "x", "ce-specversion": "0.3", "ce-extension": "100 %", "ce-datacontenttype": "text/xml",
    }  # fmt: skip
    [got] = await delivered(place, mode, payload=b"\xff", content_type="image/png", headers=headers)

    attributes = event_of(mode, got).get_attributes()
    assert attributes["source"].endswith("/queues/Out")
    assert isinstance(attributes.pop("time"), datetime)
    assert {name: attributes[name] for name in attributes.keys() - {"id", "source"}} == {
        "specversion": "1.0", "type": "com.example.mine", "extension": "100 %", "datacontenttype": "image/png",
    }  # fmt: skip
    assert b"evil" not in got.body
    assert "evil" not in str(got.headers)


@each_mode
@pytest.mark.parametrize("kind", ["png", " text/plain", "text/plain, text/html"])
async def test_a_content_type_that_is_no_media_type_goes_out_as_octets(place: Place, mode: str, kind: str) -> None:
    [got] = await delivered(place, mode, payload=b"\xff", content_type=kind)

    event = event_of(mode, got)
    assert (event.get_datacontenttype(), event.get_data()) == ("application/octet-stream", b"\xff")
    assert send(f"{place.url}/api/v1/events/In", got.body, got.headers) == 201


async def test_headers_of_an_event_with_such_a_content_type_go_out_as_octets(place: Place) -> None:
    headers = {f"ce-{name}": value for name, value in PLACED.items()}
    [got] = await delivered(place, "binary", payload=b"\xff", content_type="png", headers=headers)

    assert got.headers["content-type"] == "application/octet-stream"
    assert send(f"{place.url}/api/v1/events/In", got.body, got.headers) == 201
