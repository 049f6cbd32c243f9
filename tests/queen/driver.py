"""Queen's client as one tenant of a server, the same tenant by plain requests, and natively."""

from __future__ import annotations

from typing import Any, Self

import httpx
import queen

from skep.clock import ManualClock
from skep.testing.server import RunningServer
from tests.http.driver import Api

GROUP = "__QUEUE_MODE__"


class Queen:
    """One tenant's clients."""

    def __init__(self, server: RunningServer, clock: ManualClock, tenant: str, token: str | None = None) -> None:
        self.server = server
        self.clock = clock
        self.tenant = tenant
        headers = {"Skep-Tenant": tenant}
        self.client: Any = queen.Queen(url=server.queen_url, headers=headers, bearer_token=token, retry_attempts=1)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self.http = httpx.AsyncClient(base_url=server.queen_url, headers=headers, verify=False)  # no TLS to set up
        self.api = Api(server, tenant)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        await self.http.aclose()
        self.api.close()

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and what is due be done."""
        self.clock.advance(seconds)
        self.server.until_quiet()

    def queue(self, name: str = "q") -> Any:
        return self.client.queue(name)

    async def create(self, name: str = "q", **options: object) -> dict[str, Any]:
        """Make a queue with options in the client's words."""
        made: dict[str, Any] = await self.queue(name).config(options).create()
        return made

    async def push(self, *data: object, queue: str = "q", partition: str = "Default") -> list[dict[str, Any]]:
        pushed: list[dict[str, Any]] = (
            await self.queue(queue).partition(partition).push([{"data": one} for one in data])
        )
        return pushed

    async def pop(
        self, batch: int = 1, queue: str = "q", group: str | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Pop; each option is a method of the client's builder."""
        asked = self.queue(queue).batch(batch).wait(False)
        if group is not None:
            asked = asked.group(group)
        for name, value in options.items():
            asked = getattr(asked, name)(value)
        found: list[dict[str, Any]] = await asked.pop()
        return found

    async def data(self, batch: int = 10, **options: Any) -> list[Any]:
        """The payloads of a pop."""
        return [message["data"] for message in await self.pop(batch, **options)]

    async def get(self, path: str, **query: object) -> Any:
        """The answer of a plain GET; the text of its error when it failed."""
        return await self.call("GET", path, params={name: str(value) for name, value in query.items()})

    async def post(self, path: str, body: object) -> Any:
        return await self.call("POST", path, json=body)

    async def call(self, method: str, path: str, **given: Any) -> Any:
        """The status and the body of a plain request."""
        answer = await self.http.request(method, path, **given)
        return answer.status_code, answer.json() if answer.content else None
