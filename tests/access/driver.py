"""Keys, and callers who show them, against a running server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from skep.access.keys import Minted, mint
from skep.clock import Instant
from skep.model.key import VERBS_OF, Grant, Role, Verb
from skep.testing.server import RunningServer
from tests.http.driver import Reply


class Caller:
    """A connection of someone with a key, or with none."""

    def __init__(self, port: int, token: str | None, tenant: str | None = None) -> None:
        self.token = token
        self.tenant = tenant
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def close(self) -> None:
        self._connection.close()

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        given = dict(headers or {})
        if self.token is not None:
            given.setdefault("Authorization", f"Bearer {self.token}")
        if self.tenant is not None:
            given.setdefault("Skep-Tenant", self.tenant)
        self._connection.request(method, path, body, given)
        response = self._connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, found, response.read())

    def get(self, path: str) -> Reply:
        return self.request("GET", path)

    def delete(self, path: str) -> Reply:
        return self.request("DELETE", path)

    def put(self, path: str, value: object) -> Reply:
        return self.request("PUT", path, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def post(self, path: str, value: object = None) -> Reply:
        body = b"" if value is None else json.dumps(value).encode()
        return self.request("POST", path, body, {"Content-Type": "application/json"})

    def push(self, queue: str, *payloads: object, **fields: object) -> Reply:
        items = [{"queue": queue, "payload": payload, **fields} for payload in payloads]
        return self.post("/api/v1/push", {"items": items})

    def pop(self, queue: str, query: str = "") -> Reply:
        return self.get(f"/api/v1/pop/queue/{queue}?batch=10{query}")

    def ack(self, message: dict[str, Any]) -> Reply:
        return self.post("/api/v1/ack", {"leaseId": message["leaseId"], "seq": message["seq"], "status": "completed"})


def cookie_of(reply: Reply) -> str:
    """What a browser shows after an answer that set a cookie."""
    return reply.headers["set-cookie"].partition(";")[0]


class Door:
    """Makes keys behind the wire."""

    def __init__(self, server: RunningServer, tenant: str) -> None:
        self.server = server
        self.tenant = tenant
        self._callers: list[Caller] = []

    def close(self) -> None:
        for caller in self._callers:
            caller.close()

    def key(
        self,
        *verbs: Verb,
        queues: Sequence[str] = ("*",),
        tenants: Sequence[str] | None = None,
        grants: Sequence[Grant] | None = None,
        expires_at: Instant | None = None,
        requests_per_second: float | None = None,
    ) -> Minted:
        """A key for these verbs, in the test's own tenant unless others are named."""
        given = grants or (Grant(verbs, tuple(tenants or (self.tenant,)), tuple(queues)),)
        minted = mint(
            "test", given, created_by="test", now=self.server.engine.now(), expires_at=expires_at,
            requests_per_second=requests_per_second,
        )  # fmt: skip
        self.server.run(self.server.engine.access.put_key(minted.record))
        return minted

    def caller(self, *verbs: Verb, tenant: str | None = None, **key: Any) -> Caller:
        """Someone with such a key; ``tenant`` is the one they name, if any."""
        return self.with_token(self.key(*verbs, **key).text, tenant)

    def session(self, key: str, **headers: str) -> str:
        """Log in with a key; the cookie that the browser shows from then on."""
        form = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded", **headers}
        entered = self.with_token(None).request("POST", "/login", urlencode({"key": key}).encode(), form)
        assert entered.status == 303, entered
        return cookie_of(entered)

    def role(self, role: Role, **key: Any) -> Caller:
        return self.caller(*VERBS_OF[role], **key)

    def with_token(self, token: str | None, tenant: str | None = None) -> Caller:
        caller = Caller(self.server.port, token, tenant)
        self._callers.append(caller)
        return caller

    def revoke(self, minted: Minted) -> None:
        self.server.run(self.server.engine.access.revoke_key(minted.record.id))
