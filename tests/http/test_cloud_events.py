"""CloudEvents that come in: made by the CNCF's SDK and by hand, whole or not at all, and refused with a cure."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from tests.http.driver import Api, Reply

EVENTS = "/api/v1/events/orders"
STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
PLACED = {"specversion": "1.0", "id": "1001", "source": "/shop", "type": "com.example.placed"}
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def send(api: Api, message: HTTPMessage) -> Reply:
    """What the SDK made, as a request."""
    return api.request("POST", EVENTS, message.body, message.headers)


def structured(api: Api, event: object, kind: str = STRUCTURED) -> Reply:
    """An event, or anything else, in the JSON format."""
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return api.request("POST", EVENTS, body, {"Content-Type": kind})


def binary(api: Api, body: bytes = b"", kind: str | None = "application/json", **attributes: str | None) -> Reply:
    """An event whose attributes are headers; None leaves out one that an event must have."""
    given: dict[str, str | None] = {**PLACED, **attributes}
    headers = {f"ce-{name}": value for name, value in given.items() if value is not None}
    return api.request("POST", EVENTS, body, headers if kind is None else {**headers, "Content-Type": kind})


def only(api: Api) -> dict[str, Any]:
    """The one message that is in the queue."""
    [message] = api.pop("orders")
    return message


def nothing_came(api: Api) -> bool:
    """Whether there is no queue yet: the first event makes it."""
    return api.get("/api/v1/pop/queue/orders").status == 404


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_an_event_of_the_sdk_is_a_message_with_its_attributes_as_headers(api: Api, write: Any) -> None:
    attributes = {
        "id": "order 1001", "source": "https://shop.example/orders", "type": "com.example.placed", "subject": 'Zoë "Z" 100% 😀',
        "time": datetime(2026, 1, 31, 12, tzinfo=UTC), "datacontenttype": "application/json", "partitionkey": "customer-42",
        "dataschema": "https://shop.example/schema", "comexampleextension": "a b", "traceparent": PARENT, "tracestate": "a=1",
    }  # fmt: skip
    reply = send(api, write(CloudEvent(attributes, {"total": 99.5, "to": "Zoë"})))

    assert reply.status == 201, reply
    message = only(api)
    assert message["payload"] == {"total": 99.5, "to": "Zoë"}
    assert message["partition"] == "customer-42"
    assert message["transactionId"] == "https://shop.example/orders order 1001"
    assert message["contentType"] is None
    assert message["traceId"].replace("-", "") == TRACE
    assert message["headers"] == {
        "ce-specversion": "1.0", "ce-id": "order 1001", "ce-source": "https://shop.example/orders", "ce-type": "com.example.placed",
        "ce-subject": 'Zoë "Z" 100% 😀', "ce-time": "2026-01-31T12:00:00Z", "ce-datacontenttype": "application/json",
        "ce-partitionkey": "customer-42", "ce-dataschema": "https://shop.example/schema", "ce-comexampleextension": "a b",
        "traceparent": PARENT, "tracestate": "a=1",
    }  # fmt: skip


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
def test_a_repeated_event_is_a_duplicate_in_whatever_mode_it_comes(api: Api, write: Any) -> None:
    event = CloudEvent({**PLACED}, {"n": 1})
    first, again, other = (send(api, make(event)) for make in (write, write, to_structured_event))

    assert (first.status, again.status, other.status) == (201, 200, 200)
    assert {reply.json["messages"][0]["message_id"] for reply in (first, again, other)} == {
        first.json["messages"][0]["message_id"]
    }
    assert len(api.pop("orders")) == 1


def test_ids_are_of_their_source_and_long_ones_are_hashed(api: Api) -> None:
    pairs = [
        ("/a", "b c"),
        ("/a", "c"),
        ("/a%20b", "c"),
        ("/a", 300 * "x"),
        ("/a", 300 * "x" + "y"),
        ("/" + 300 * "a", "x"),
    ]
    for source, id_ in pairs:
        assert binary(api, b"1", source=source.replace("%", "%25"), id=id_.replace(" ", "%20")).status == 201

    found = [message["transactionId"] for message in api.pop("orders")]

    hashed = ["ce-sha256-" + hashlib.sha256(f"{source} {id_}".encode()).hexdigest() for source, id_ in pairs[3:]]
    assert found == ["/a b c", "/a c", "/a%20b c", *hashed]


@pytest.mark.parametrize("write", [to_binary_event, to_structured_event])
@pytest.mark.parametrize(
    ("kind", "data"), [("image/png", b"\xff\x00\xfe"), ("text/plain", "Zoë"), ("application/xml", "<a/>")]
)
def test_other_data_is_a_payload_of_its_type(api: Api, write: Any, kind: str, data: str | bytes) -> None:
    assert send(api, write(CloudEvent({**PLACED, "datacontenttype": kind}, data))).status == 201

    message = only(api)
    assert message["contentType"] == message["headers"]["ce-datacontenttype"] == kind
    assert base64.b64decode(message["payload"]) == (data if isinstance(data, bytes) else data.encode())


@pytest.mark.parametrize(
    ("members", "payload", "kind"),
    [
        ({"data": None}, None, None),
        ({"data": "a text"}, "a text", None),
        ({"data": '{"a": 1}', "datacontenttype": "application/vnd.a+json; charset=utf-8"}, '{"a": 1}', None),
        ({"data_base64": base64.b64encode(b'{"a": 1}').decode()}, {"a": 1}, None),
        ({"data_base64": base64.b64encode(b"[1]").decode(), "datacontenttype": "text/json"}, [1], None),
        ({"data_base64": "/w=="}, "/w==", "application/octet-stream"),
        ({"data_base64": None, "data": 1}, 1, None),
        ({"data_base64": "", "datacontenttype": "text/plain"}, "", "text/plain"),
        ({"data": "ä", "datacontenttype": "text/plain;charset=ISO-8859-1"}, "5A==", "text/plain;charset=ISO-8859-1"),
    ],
)  # fmt: skip
def test_the_json_format_says_what_data_is(api: Api, members: dict[str, Any], payload: Any, kind: str | None) -> None:
    assert structured(api, PLACED | members).status == 201

    message = only(api)
    assert (message["payload"], message["contentType"]) == (payload, kind)
    assert "ce-data" not in message["headers"]


@pytest.mark.parametrize(
    ("body", "kind", "payload", "told"),
    [
        (b" [1, 2] ", None, [1, 2], None),
        (b"\xff", None, "/w==", "application/octet-stream"),
        (b'{"a": 1}', "application/problem+json", {"a": 1}, None),
        (b"", "text/plain", "", "text/plain"),
    ],
)
def test_the_content_type_says_what_the_body_is(
    api: Api, body: bytes, kind: str | None, payload: Any, told: str | None
) -> None:
    assert binary(api, body, kind).status == 201

    message = only(api)
    assert (message["payload"], message["contentType"]) == (payload, told)
    assert message["headers"].get("ce-datacontenttype") == kind


def test_an_event_without_data_is_a_null_that_says_so(api: Api) -> None:
    assert structured(api, PLACED).status == 201
    assert binary(api, id="2").status == 201

    for message in api.pop("orders"):
        assert (message["payload"], message["contentType"], message["headers"]["ce-data"]) == (None, None, "none")


def test_attributes_that_are_no_texts_become_texts(api: Api) -> None:
    assert structured(api, PLACED | {"retried": True, "count": -5, "unset": None, "subject": None}).status == 201

    headers = only(api)["headers"]
    assert (headers["ce-retried"], headers["ce-count"]) == ("true", "-5")
    assert not {"ce-unset", "ce-subject"} & headers.keys()


def test_header_values_are_unquoted_and_percent_decoded_once(api: Api) -> None:
    values = {"one": "Euro%20%e2%82%AC%20%F0%9F%98%80", "two": '"a \\"b\\" c"', "three": "100%2525", "four": "%41"}
    assert binary(api, b"1", **values).status == 201

    headers = only(api)["headers"]
    assert [headers[f"ce-{name}"] for name in values] == ["Euro € 😀", 'a "b" c', "100%25", "A"]


def test_a_batch_is_stored_whole(api: Api) -> None:
    sdk = JSONFormat()
    made = [CloudEvent({**PLACED, "id": str(n), "partitionkey": f"p{n}"}, {"n": n}) for n in range(3)]
    reply = structured(api, [json.loads(sdk.write(one)) for one in made], BATCHED)

    assert (reply.status, [one["status"] for one in reply.json["messages"]]) == (201, 3 * ["stored"])
    assert sorted(message["payload"]["n"] for message in api.pop("orders")) == [0, 1, 2]


def test_a_large_batch_is_stored_whole_and_its_repeat_is_known(api: Api) -> None:
    batch = [PLACED | {"id": str(n), "data": {"n": n}} for n in range(10_000)]

    assert [structured(api, batch, BATCHED).status for _ in range(2)] == [201, 200]
    assert structured(api, [*batch, PLACED | {"id": "one too many"}], BATCHED).status == 422
    assert len(api.pop("orders", batch=10_000)) == 10_000


def test_an_empty_batch_is_sound(api: Api) -> None:
    reply = structured(api, [], BATCHED)
    assert (reply.status, reply.json["messages"]) == (200, [])


@pytest.mark.parametrize(
    ("bad", "index"),
    [(PLACED | {"id": "2", "type": None}, 1), (PLACED, 1), (PLACED | {"id": "2", "Bad": "1"}, 1)],
)
def test_a_batch_with_a_bad_event_is_refused_as_a_whole_and_the_error_names_it(api: Api, bad: Any, index: int) -> None:
    reply = structured(api, [PLACED, bad, PLACED | {"id": "3"}], BATCHED)

    assert (reply.status, reply.code) == (422, "INVALID_EVENT")
    assert reply.json["error"]["message"].startswith(f"Event {index}")
    assert reply.json["error"]["details"]["index"] == index
    assert nothing_came(api)


@pytest.mark.parametrize(
    ("change", "cure"),
    [
        *[({name: None}, f"{name} is missing") for name in PLACED],
        *[({name: ""}, f"{name} is missing or empty") for name in ("id", "source", "type")],
        ({"specversion": "0.3"}, "only 1.0 is taken"),
        ({"specversion": "1.1"}, "only 1.0 is taken"),
        ({"myName": "x"}, "small letters and digits"),
        ({"my_name": "x"}, "small letters and digits"),
        ({"subject": "a\r\nb: c"}, "control character"),
        ({"subject": "a\ufffe"}, "control character"),
        ({"subject": ""}, "leave it out"),
        ({"source": "my shop"}, "write %20"),
        ({"time": "yesterday"}, "2026-01-31T12:00:00Z"),
        ({"time": "2026-02-30T12:00:00Z"}, "2026-01-31T12:00:00Z"),
        ({"time": "2026-01-31T12:00:00"}, "2026-01-31T12:00:00Z"),
        ({"datacontenttype": "json"}, "application/json"),
        ({"extension": {"a": 1}}, "write it as a text"),
        ({"extension": [1]}, "write it as a text"),
        ({"partitionkey": ""}, "leave it out"),
        ({"extension": 2**31}, "write it as a text"),
        ({"extension": 1.5}, "write it as a text"),
        ({"data": 1, "data_base64": "AA=="}, "both data and data_base64"),
        ({"data_base64": "?"}, "not Base64"),
        ({"data_base64": 1}, "not Base64"),
        ({"data": {"a": 1}, "datacontenttype": "text/plain"}, "send a text"),
        ({"data": "€", "datacontenttype": "text/plain; charset=us-ascii"}, "send data_base64"),
        ({"data": "a", "datacontenttype": "text/plain; charset=idna"}, "send data_base64"),
    ],
)  # fmt: skip
def test_an_event_that_is_not_sound_is_refused_with_the_cure(api: Api, change: dict[str, Any], cure: str) -> None:
    reply = structured(api, PLACED | change)

    assert (reply.status, reply.code) == (422, "INVALID_EVENT"), reply
    assert cure in reply.json["error"]["message"]
    assert nothing_came(api)


@pytest.mark.parametrize(
    ("body", "kind", "change", "status", "code", "cure"),
    [
        (b"{", "application/json", {}, 400, "MALFORMED", "not JSON, as its content type says"),
        (b'{"a": 1, "a": 2}', "application/json", {}, 400, "MALFORMED", "twice"),
        (101 * b"[" + 101 * b"]", "application/json", {}, 422, "INVALID_REQUEST", "nested"),
        (100_000 * b"[" + 100_000 * b"]", "application/json", {}, 422, "INVALID_REQUEST", "nested too deeply"),
        (b"", "application/json", {"specversion": None}, 422, "INVALID_EVENT", "specversion is missing"),
        (b"", "application/json", {"datacontenttype": "a/b"}, 422, "INVALID_EVENT", "leave out ce-datacontenttype"),
        (b"", "application/json", {"subject": "%C0%A0"}, 422, "INVALID_EVENT", "percent-encoded UTF-8"),
        (b"", "application/json", {"subject": "a%0D%0Ab"}, 422, "INVALID_EVENT", "control character"),
        (b"", "application/json", {"data": "x"}, 422, "INVALID_EVENT", "no name of an attribute"),
        (b"", "application/json", dict.fromkeys(PLACED), 422, "INVALID_EVENT", "carries no event"),
        (b"{}", "application/cloudevents+avro", {}, 415, "UNSUPPORTED_MEDIA_TYPE", STRUCTURED),
        (b"{}", STRUCTURED + "; charset=latin1", {}, 415, "UNSUPPORTED_MEDIA_TYPE", "UTF-8"),
        (b"{", STRUCTURED, {}, 400, "MALFORMED", "not JSON"),
        (b'{"id": "1", "id": "2"}', STRUCTURED, {}, 400, "MALFORMED", "twice"),
        (b"[]", STRUCTURED, {}, 422, "INVALID_REQUEST", "xpected `object`"),
        (b"{}", BATCHED, {}, 422, "INVALID_REQUEST", "xpected `array`"),
        (b"[1]", BATCHED, {}, 422, "INVALID_REQUEST", "xpected `object`"),
    ],
)  # fmt: skip
def test_a_request_that_carries_no_sound_event_is_refused_with_the_cure(
    api: Api, body: bytes, kind: str, change: dict[str, str | None], status: int, code: str, cure: str
) -> None:
    reply = binary(api, body, kind, **change)

    assert (reply.status, reply.code) == (status, code), reply
    assert cure in reply.json["error"]["message"]
    assert nothing_came(api)


def test_an_attribute_may_be_given_once(api: Api) -> None:
    connection = HTTPConnection("127.0.0.1", api.server.port)
    connection.putrequest("POST", EVENTS)
    for name, value in [*PLACED.items(), ("id", "1002")]:
        connection.putheader(f"ce-{name}", value)
    connection.endheaders()
    answer = connection.getresponse()

    assert (answer.status, b"id is given twice" in answer.read()) == (422, True)
    connection.close()


def test_attributes_of_a_megabyte_are_refused_and_the_server_goes_on(api: Api) -> None:
    long = structured(api, PLACED | {"subject": 1_000_000 * "x"})
    assert (long.status, long.code) == (422, "INVALID_HEADERS")
    assert structured(api, PLACED | {1_000_000 * "x": "1"}).code == "INVALID_HEADERS"
    assert structured(api, [PLACED | {"id": 1_000_000 * str(n)} for n in range(3)], BATCHED).code == "INVALID_HEADERS"

    assert structured(api, PLACED).status == 201


def test_the_context_of_the_request_is_that_of_an_event_without_its_own(api: Api) -> None:
    other = "00-" + 32 * "1" + "-b7ad6b7169203331-01"
    body = json.dumps([PLACED, PLACED | {"id": "2", "traceparent": other}]).encode()
    api.request("POST", EVENTS, body, {"Content-Type": BATCHED, "traceparent": PARENT})

    assert [message["headers"]["traceparent"] for message in api.pop("orders")] == [PARENT, other]


def test_a_typed_queue_checks_the_data_and_makes_the_partition(api: Api) -> None:
    spec = b'{"name": "EventShop", "queues": {"orders": {"message_type": {"n": "int", "who": "string"}, "key": "who"}}}'
    api.tenant = "default"
    assert api.request("PUT", "/api/v1/apps/EventShop", spec, {"Content-Type": "application/json"}).status == 200
    try:
        wrong = structured(api, [PLACED | {"data": {"n": "x", "who": "a"}}], BATCHED)
        assert (wrong.status, wrong.code) == (422, "MESSAGE_INVALID")
        assert binary(api, b"text", "text/plain").code == "MESSAGE_INVALID"
        assert structured(api, PLACED | {"data": {"n": 1, "who": "Ann"}}).status == 201
        assert only(api)["partition"] == "Ann"
    finally:
        api.delete("/api/v1/apps/EventShop")
        api.delete("/api/v1/resources/queues/orders")


def test_a_full_queue_refuses_the_batch(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"max_depth": 2}})
    reply = structured(api, [PLACED | {"id": str(n)} for n in range(3)], BATCHED)

    assert (reply.status, reply.code) == (429, "QUEUE_FULL")
    assert api.pop("orders") == []
