"""W3C trace context over a real socket, with headers that come twice, come empty, or come alone."""

from __future__ import annotations

from http.client import HTTPConnection

import msgspec
import pytest

from skep.testing.server import running_server

TRACE = "0af7651916cd43dd8448eb211c80319c"
SOUND = f"00-{TRACE}-b7ad6b7169203331-01"
Given = list[tuple[str, str]]


@pytest.mark.parametrize(
    ("given", "carried"),
    [
        ([("traceparent", SOUND)], {"traceparent": SOUND}),
        ([("traceparent", SOUND), ("traceparent", SOUND)], None),
        ([("traceparent", SOUND + "-more")], None),
        ([("tracestate", "a=1")], None),
        (
            [("tracestate", ""), ("TraceState", "a=1"), ("traceparent", SOUND), ("tracestate", "b=2")],
            {"traceparent": SOUND, "tracestate": "a=1,b=2"},
        ),
    ],
)
def test_a_push_carries_the_context_that_its_headers_write(given: Given, carried: dict[str, str] | None) -> None:
    with running_server() as server:
        connection = HTTPConnection(server.url.removeprefix("http://"))
        body = b'{"items": [{"queue": "q", "payload": 1}]}'
        connection.putrequest("POST", "/api/v1/push")
        for name, value in [*given, ("Content-Length", str(len(body)))]:
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        assert (answer.status, answer.read() != b"") == (201, True)
        connection.request("GET", "/api/v1/pop/queue/q")
        [message] = msgspec.json.decode(connection.getresponse().read())["messages"]
        connection.close()

    assert (message.get("headers") or None) == carried
    assert (message["traceId"].replace("-", "") == TRACE) is (carried is not None)
