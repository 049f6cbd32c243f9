"""What the tests of webhooks do: apply a spec, post as a sender does, and look at what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from skep.clock import MICROS_PER_SECOND, ManualClock
from skep.model import DEFAULT_TENANT
from skep.spec import load, to_json
from skep.testing.server import RunningServer
from tests.http.driver import Api, Reply
from tests.webhooks import signing

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECRET, OLD_SECRET = "the secret of these tests", "the secret before that"
SECRETS = {
    "SECRET": SECRET, "OLD_SECRET": OLD_SECRET, "STANDARD_SECRET": signing.STANDARD_SECRET,
    "PUBLIC_KEY": signing.PUBLIC_KEY,
    # those of the examples
    "PAGERDUTY_WEBHOOK_SECRET": "the secret of PagerDuty", "CHAT_WEBHOOK_SECRET": signing.STANDARD_SECRET,
    "GITHUB_WEBHOOK_SECRET": "the secret of GitHub", "CI_SECRET": signing.STANDARD_SECRET,
    "STRIPE_WEBHOOK_SECRET": "whsec_of_stripe_now", "STRIPE_WEBHOOK_SECRET_OLD": "whsec_of_stripe_before",
    "SLACK_SIGNING_SECRET": "the secret of Slack", "CHECKOUT_SECRET": signing.STANDARD_SECRET,
    "WAREHOUSE_SECRET": signing.STANDARD_SECRET, "WAREHOUSE_SECRET_OLD": signing.STANDARD_SECRET,
}  # fmt: skip

SIGNED = 'verify_hmac { header: "X-Signature", secret_env: ["SECRET", "OLD_SECRET"] }'


class Sender:
    """A sender of webhooks, and whoever looks after the server."""

    def __init__(self, server: RunningServer, clock: ManualClock) -> None:
        self.server = server
        self.clock = clock
        self.api = Api(server, DEFAULT_TENANT)

    def close(self) -> None:
        self.api.close()

    @property
    def seconds(self) -> int:
        """The time as senders write it."""
        return self.clock.now() // MICROS_PER_SECOND

    # the app

    def apply(self, spec: str, name: str = "app.skep") -> None:
        """Apply a spec."""
        app = load(spec, name)
        reply = self.api.request("PUT", f"/api/v1/apps/{app.name}", to_json(app).encode())
        assert reply.status == 200, reply

    def apply_example(self, name: str) -> None:
        """Apply one of the examples."""
        self.apply((EXAMPLES / f"{name}.skep").read_text(encoding="utf-8"), f"{name}.skep")

    # posting

    def post(self, path: str, body: bytes | object, headers: dict[str, str] | None = None) -> Reply:
        """Post as it is."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.api.request("POST", f"/hook/{path}", content, headers)

    def signed(self, path: str, value: object, secret: str = SECRET, **headers: str) -> Reply:
        """Post with a plain signature."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        more = {name.replace("_", "-"): text for name, text in headers.items()}
        return self.post(path, body, {**signing.plain(body, secret), **more})

    # looking

    def stored(self, queue: str, tenant: str = DEFAULT_TENANT) -> list[dict[str, Any]]:
        """The messages of a queue, oldest first, with their payloads."""
        api = Api(self.server, tenant)
        try:
            return [message["payload"] for message in api.pop(queue, 1000, "&consumerGroup=looking&autoAck=true")]
        finally:
            api.close()

    def dead(self, queue: str) -> list[dict[str, Any]]:
        """The dead letters of a queue."""
        letters: list[dict[str, Any]] = self.api.get(f"/api/v1/dlq?queue={queue}&preview=10000").json["deadLetters"]
        return letters

    def entity(self, type_: str, id_: str) -> dict[str, Any]:
        """An entity as it is."""
        reply = self.api.get(f"/api/v1/entities/{type_}/{id_}")
        assert reply.status == 200, reply
        found: dict[str, Any] = reply.json
        return found
