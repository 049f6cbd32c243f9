"""Plain HTTP against a running server, with nothing of ours on the client's side."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

from skep.testing.server import RunningServer


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of the error it tells of."""
        return str(self.json["error"]["code"])


class Api:
    """A connection of one tenant to one server."""

    def __init__(self, server: RunningServer, tenant: str) -> None:
        self.server = server
        self.tenant = tenant
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        self._connection.request(method, path, body, {"Skep-Tenant": self.tenant, **(headers or {})})
        response = self._connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, response.read())

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def delete(self, path: str) -> Reply:
        return self.request("DELETE", path)

    def post(self, path: str, value: object = None) -> Reply:
        body = b"" if value is None else json.dumps(value).encode()
        return self.request("POST", path, body, {"Content-Type": "application/json"})

    # the few calls that most tests begin with

    def push(self, queue: str, *payloads: object, **fields: object) -> Reply:
        items = [{"queue": queue, "payload": payload, **fields} for payload in payloads]
        return self.post("/api/v1/push", {"items": items})

    def pop(self, queue: str, batch: int = 10, query: str = "") -> list[dict[str, Any]]:
        reply = self.get(f"/api/v1/pop/queue/{queue}?batch={batch}{query}")
        if reply.status == 204:
            return []
        assert reply.status == 200, reply
        messages: list[dict[str, Any]] = reply.json["messages"]
        return messages

    def ack(self, message: dict[str, Any], status: str = "completed", **fields: object) -> Reply:
        return self.post(
            "/api/v1/ack", {"leaseId": message["leaseId"], "seq": message["seq"], "status": status, **fields}
        )
