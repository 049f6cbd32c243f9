"""A request for every operation, made from the route table, so that none is forgotten."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pyarrow as pa

from skep.http.request.permission import Reach
from skep.http.request.route import Media, Route
from skep.model.key import Verb
from skep.wire.log import ARROW
from tests.access.driver import Caller, Door
from tests.http.driver import Reply

SECRET = "orders"
"""The queue that all requests are about: examples of the reference name it."""
TRACE = "01a1de2f-4a86-75f1-89bd-cf7336a85775"
ALL = tuple(Verb)


class Made(NamedTuple):
    """A request."""

    method: str
    path: str
    body: bytes | None
    headers: dict[str, str]

    def by(self, caller: Caller) -> Reply:
        return caller.request(self.method, self.path, self.body, self.headers)


def lease_in(door: Door, queue: str = SECRET) -> str:
    """A live lease on a queue, and so a queue with messages, a dead letter and a trace."""
    admin = door.caller(*ALL)
    admin.push(queue, {"n": 1}, {"n": 2}, {"n": 3}, traceId=TRACE, transactionId="t1-" + queue)
    admin.push(queue, {"n": 4}, traceId=TRACE)
    admin.push(queue, {"n": 5}, deliverAt="2101-01-31T12:00:00Z", partition="later")
    messages = admin.pop(queue).json["messages"]
    assert admin.pop(queue, "&consumerGroup=g").status == 200
    staged = admin.request("POST", f"/api/v1/staging/q1/1/0/1?queue={queue}", arrow([b"1"]), {"Content-Type": ARROW})
    assert staged.status == 201
    first = {"leaseId": messages[0]["leaseId"], "seq": messages[0]["seq"], "status": "dlq", "error": f"bad {queue}"}
    assert admin.post("/api/v1/ack", first).status == 200
    admin.post("/api/v1/traces", {"events": [{"traceId": TRACE, "name": f"saw {queue}", "queue": queue}]})
    lease: str = messages[0]["leaseId"]
    return lease


def made(operation: Route, tenant: str, lease: str) -> Made:
    """A request that names the queue wherever a queue can be named."""
    path, body, headers = operation.path, None, {}
    for name, value in {
        "queue": SECRET, "name": SECRET, "webhook": "none", "tenant": tenant, "group": "g", "lease": lease, "app": "Shop",
        "transactionId": "t1", "seq": "1", "traceId": TRACE, "letter": "1", "type": "Order", "run": "r1", "query": "q1",
        "epoch": "1", "attempt": "1", "table": "leases", "asset": "none.css", "id": TRACE, "operation": TRACE, "key": "0" * 16,
        "partition": "0", "messageId": TRACE,
    }.items():  # fmt: skip
        path = path.replace("{" + name + "}", value)
    path = re.sub(r"{\w+}", "1", path)
    known = {p.name: p for p in operation.parameters if f"{{{p.name}}}" not in operation.path}
    query: dict[str, str] = {p.name: SECRET for p in known.values() if p.required}
    if "namespace" in known and operation.verb == "pop":
        query["namespace"] = "n"
    if "{table}" in operation.path or "staging/{query}/{epoch}/{partition}" in operation.path:
        query["queue"] = SECRET
    if operation.example is not None:
        text = json.dumps(operation.example).replace("LEASE_ID", lease).replace("invoices", SECRET)
        text = re.sub(r'"queue": "(?!orders)\w+"', f'"queue": "{SECRET}"', text)
        text = text.replace('"name": "charged card"', f'"name": "charged card", "queue": "{SECRET}"')
        first = operation.request[0] if isinstance(operation.request, tuple) else operation.request
        kind = first.type if isinstance(first, Media) else "application/json"
        body, headers = text.encode(), {"Content-Type": kind}
    elif "{partition}/{attempt}" in operation.path:
        body, headers = arrow([b"1"]), {"Content-Type": ARROW}
    elif operation.method == "POST":
        body, headers = b"", {"Content-Type": "application/x-www-form-urlencoded"}
    return Made(operation.method, f"{path}?{urlencode(query)}" if query else path, body, headers)


def arrow(payloads: list[bytes], **columns: list[Any]) -> bytes:
    """An Arrow stream."""
    batch = pa.record_batch({"payload": pa.array(payloads, pa.binary()), **columns})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def guarded_operations(door: Door) -> list[Route]:
    """Every operation that needs a key or a token, of the API and of the dashboard. What signs its requests is in `tests/sqs`."""
    app = door.server.app
    return [o for o in app.every_route if o.access.reach not in (Reach.OPEN, Reach.SIGNED)]
