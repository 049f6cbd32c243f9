"""A refused request leaves a line in the log and a trace in the store: when, why, from where; and nothing of what it said."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import skep
from skep.clock import ManualClock
from skep.config import AccessSettings
from skep.model.key import Verb
from skep.model.refusal import Refusal
from skep.spec import load, to_json
from skep.store.protocol.refusals import REFUSALS_KEPT, RefusalStore
from skep.testing.server import running_server
from skep.webhooks.excerpts import _PARTS, BODY_BYTES, EXCERPT_CHARACTERS, excerpt
from tests.access.driver import Door
from tests.webhooks.driver import SECRETS, SIGNED, Sender

APP = f"""
app Refusing {{
  queue Q {{ message_type {{ payload: json }}, retention {{ max_depth: 1 }} }}
  queue Other {{}}
  webhook Hook {{ queue: Q, {SIGNED}, idempotency {{ key: payload.id }} }}
  webhook Else {{ queue: Other, {SIGNED} }}
  webhook ByPath {{ queue: Q, {SIGNED}, tenant: path }}
}}
"""
SLACK_LIKE = {"token": "xoxb-very-secret-123", "n": 424242, "nested": {"password": "hunter2hunter2"}, "ok": True}


@pytest.fixture
def refusing(sender: Sender) -> Sender:
    sender.apply(APP)
    return sender


def told(sender: Sender, webhook: str = "Hook") -> list[dict[str, Any]]:
    reply = sender.api.get(f"/api/v1/webhooks/{webhook}/refusals")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["refusals"]
    return found


def test_a_refusal_is_kept_with_its_reason(refusing: Sender) -> None:
    refusing.post("Hook", b"{}")
    refusing.signed("Hook", {"no": "id"})
    refusing.signed("Hook", b"not JSON")
    refusing.signed("Hook", {"id": 1})
    refusing.signed("Hook", {"id": 2})
    refusing.post("Hook", b" " * (12 * 1024 * 1024 + 1))

    found = told(refusing)
    assert [(one["status"], one["code"]) for one in found] == [
        (413, "PAYLOAD_TOO_LARGE"), (503, "QUEUE_FULL"), (400, "MALFORMED"), (422, "MAPPING_FAILED"), (401, "SIGNATURE_INVALID"),
    ]  # fmt: skip
    assert {one["remote"] for one in found} == {"127.0.0.1"}
    assert {(one["tenant"], one["queue"], one["webhook"]) for one in found} == {("default", "Q", "Hook")}
    assert found[-1]["at"] == "2025-06-15T15:06:40Z"
    assert "no X-Signature" in found[-1]["message"]
    assert found[-2]["message"] == "the expression payload.id has no value that will do"
    assert found[-3]["message"] == "the body is not JSON: invalid character (byte 4)"
    assert told(refusing, "Else") == []


TYPED = f"""
app Typed {{
  queue Q {{ message_type {{ kind: string, cents: int, labels: map<string, int> }} }}
  webhook Hook {{
    queue: Q
    {SIGNED}
    message {{ kind: headers["x-github-event"], cents: payload.cents, labels: payload.labels }}
  }}
}}
"""


def test_a_refusal_names_the_field_that_does_not_fit_and_no_value(sender: Sender) -> None:
    sender.apply(TYPED)
    good: dict[str, object] = {"cents": 1, "labels": {}}
    sender.signed("Hook", good)
    sender.signed("Hook", {**good, "cents": "hunter2"}, X_GitHub_Event="push")
    sender.signed("Hook", {**good, "labels": {"sk_live_1": "hunter2"}}, X_GitHub_Event="push")
    sender.signed("Hook", b"cents=1", Content_Type="application/x-www-form-urlencoded")

    assert [one["message"] for one in reversed(told(sender))] == [
        "field 'kind': the expression headers[\"x-github-event\"] has no value that will do",
        "field 'cents': expected int",
        "field 'labels': expected int",
        "the body is a form without the field payload, and is not JSON",
    ]


def test_a_webhook_that_is_not_there_is_told_from_one_that_refused_nothing(refusing: Sender) -> None:
    assert told(refusing, "Else") == []

    reply = refusing.api.get("/api/v1/webhooks/Elsewhere/refusals")

    assert (reply.status, reply.json["error"]["code"]) == (404, "WEBHOOK_NOT_FOUND")


def test_refusals_of_several_webhooks_are_listed_newest_first(refusing: Sender, clock: ManualClock) -> None:
    for webhook in ("Hook", "Else", "Hook"):
        refusing.post(webhook, b"{}")
        clock.advance(1)

    found = refusing.server.run(refusing.server.engine.refusals.list())

    assert [one.webhook for one in found] == ["Hook", "Else", "Hook"]
    assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)


def test_an_address_with_a_query_is_refused_with_a_trace_that_has_nothing_of_it(refusing: Sender) -> None:
    """A sender whose address has a token in it got 422, and nobody here learned why."""
    reply = refusing.api.request("POST", "/hook/Hook?access_token=querytoken&x=%ff&x=1", b'{"id": 1}')

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")
    [one] = told(refusing)
    assert (one["status"], one["code"]) == (422, "INVALID_REQUEST")
    assert "has no query" in one["message"]
    assert "token" not in json.dumps(one)


def test_a_refusal_says_nothing_of_what_the_request_said(refusing: Sender) -> None:
    secret_headers = {"Authorization": "Bearer tokentoken", "X-Signature": "ab" * 32, "X-Kind": "kindkind"}
    refusing.post("Hook", SLACK_LIKE, secret_headers)
    refusing.post("Hook", b"token=xoxb-very-secret-123&password=hunter2hunter2", secret_headers)
    refusing.signed("Hook", SLACK_LIKE)

    text = json.dumps(told(refusing))
    for secret in ("xoxb", "hunter2", "424242", "tokentoken", "ab" * 32, "kindkind", "the secret"):
        assert secret not in text, secret
    assert "authorization" in text
    assert "body of" in text


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (b'{"a": "s", "b": [1.5e3, true, null]}', '{"a":"…","b":[0,true,null]}'),
        (b'{"a": "unterminated \\" {secret', '{"a":"…"'),
        (b'{"' + b'\\"' * 1_000, '{"…"'),
        (b'{"a": "ends with \\', '{"a":"…"'),
        (b'{"a": "\\\n{", "b": 1}', '{"a":"…","b":0}'),
        (b'{"a": "unterminated \\": true, {secret:', '{"a":"…"'),
        (b'{"a": "line\\\nbreak", "b": 1}', '{"a":"…","b":0}'),
        (b'{"sk_live_0123456789abcdef": 1}', "{…:0}"),
        (b'{"AKIAIOSFODNN7EXAMPLE": 1, "eyJhbGciOiJIUzI1NiJ9": 2}', "{…:0,…:0}"),
        (b'{"card-4111111111111111": 1, "a1b2c3d4-e5f6-7890-abcd-ef0123456789": 2}', "{…:0,…:0}"),
        (
            b'{"oauth2_token": 1, "sha256": 2, "created-at": 3, "line_1": 4}',
            '{"oauth2_token":0,"sha256":0,"created-at":0,"line_1":0}',
        ),
        (b'{"<script>alert(1)</script>": "<img src=x>", "\x1b[31m": 1}', '{…:"…",…:0}'),
        (b'{"sk_live_' + b"x" * 40 + b'": 1}', "{…:0}"),
        (b'["' + "ü\u2028\x1b".encode() + b'"]', '["…"]'),
        (b"\x00\xff secret", ""),
        (b"", ""),
    ],
)
def test_an_excerpt_has_the_shape_of_a_body_and_no_value(body: bytes, shape: str) -> None:
    assert (
        excerpt([(b"x-a", b"secret"), (b"evil\nname", b"")], body)
        == f"headers x-a; body of {len(body)} bytes {shape}".rstrip()
    )


def test_a_header_whose_name_is_a_key_is_left_out() -> None:
    names = (
        b"x-hub-signature-256",
        b"sk_live_0123456789abcdef",
        b"authorization",
        b"<script>",
        b"x-amz-content-sha256",
    )

    found = excerpt([(name, b"Bearer hunter2") for name in names], b"")

    assert found == "headers x-hub-signature-256, authorization, x-amz-content-sha256; body of 0 bytes"


@pytest.mark.parametrize("piece", [b'\\"', b'\\"x: ', b"[true, ", b" "])
def test_a_string_without_an_end_is_one_part_that_is_read_once(piece: bytes) -> None:
    """Each quote in it used to be tried as a start: 2 KiB of them held up the event loop for a third of a second."""
    rest = b'"' + piece * (BODY_BYTES // len(piece))

    assert _PARTS.findall(b'{"a":' + rest) == [b"{", b'"a":', rest]


def test_an_excerpt_is_bounded() -> None:
    found = excerpt([(b"x-%d" % number, b"v" * 1_000) for number in range(1_000)], b'{"a":' * 1_000_000)
    assert len(found) <= EXCERPT_CHARACTERS


class Counting:
    """A store's refusals, with a count of the transactions that wrote some."""

    def __init__(self, refusals: RefusalStore) -> None:
        self.refusals = refusals
        self.writes: list[int] = []

    async def note(self, some: Sequence[Refusal]) -> None:
        self.writes.append(len(some))
        await self.refusals.note(some)

    async def list(self, webhook: str | None = None, limit: int = REFUSALS_KEPT) -> list[Refusal]:
        return await self.refusals.list(webhook, limit)


def test_a_flood_of_refusals_is_one_transaction_and_one_line(refusing: Sender) -> None:
    """Noted one after the other, and written when somebody looks: no time passes in between."""
    engine = refusing.server.engine
    counting = Counting(engine._store.refusals)
    engine.refusals._store = counting

    async def flood() -> list[Refusal]:
        for number in range(10_000):
            engine.refusals.note(Refusal("Hook", engine.now(), "SIGNATURE_INVALID", 401, "", "::1", str(number)))
        return await engine.refusals.list("Hook")

    with capture_logs() as logged:
        found = refusing.server.run(flood())

    assert [one.excerpt for one in found] == [str(number) for number in range(9_999, 9_899, -1)]
    assert counting.writes == [REFUSALS_KEPT]
    lines = [line for line in logged if line["event"] == "a webhook refused a request"]
    assert [(line["webhook"], line["code"], line["status"]) for line in lines] == [("Hook", "SIGNATURE_INVALID", 401)]


def test_refused_calls_beyond_what_is_kept_push_out_the_oldest(refusing: Sender) -> None:
    refusing.signed("Hook", {"no": "id"})
    for number in range(REFUSALS_KEPT):
        assert refusing.post("Hook", {"n": number}).status == 401

    assert [one["code"] for one in told(refusing)] == ["SIGNATURE_INVALID"] * REFUSALS_KEPT


def test_the_log_tells_how_many_it_left_out(refusing: Sender) -> None:
    with capture_logs() as logged:
        for _ in range(5):
            refusing.post("Hook", b"{}\nforged log line", {"X-Signature": "ff"})
        refusing.clock.advance(11)
        refusing.post("Hook", b"{}", {"X-Signature": "ff"})

    lines = [line for line in logged if line["event"] == "a webhook refused a request"]
    assert [line["more_since_last_line"] for line in lines] == [0, 4]
    assert "forged" not in str(lines)


def test_refusals_survive_a_restart(store: str, clock: ManualClock) -> None:
    with running_server(store, clock=clock, environment=SECRETS) as server:
        sender = Sender(server, clock)
        sender.apply(APP)
        sender.post("Hook", b"{}")
        sender.close()

    with running_server(store, clock=clock, environment=SECRETS) as server:
        sender = Sender(server, clock)
        assert [one["code"] for one in told(sender)] == ["SIGNATURE_INVALID"]
        sender.close()


def test_who_may_not_read_the_queue_or_is_of_another_tenant_sees_no_refusals(tmp_path: Path) -> None:
    access = AccessSettings(required=True)
    with running_server(str(tmp_path / "skep.db"), environment=SECRETS, access=access) as server:
        door = Door(server, "default")
        admin = door.caller(*Verb, tenants=["*"])
        applied = admin.request("PUT", "/api/v1/apps/Refusing", to_json(load(APP, "app.skep")).encode())
        assert applied.status == 200, applied
        for path in ("Hook", "Else", "ByPath/shop"):
            assert admin.request("POST", f"/hook/{path}", b"{}").status == 401

        def seen(queues: list[str], tenants: list[str], tenant: str) -> list[int]:
            caller = door.caller(Verb.READ, queues=queues, tenants=tenants, tenant=tenant)
            return [
                len(caller.get(f"/api/v1/webhooks/{name}/refusals").json["refusals"])
                for name in ("Hook", "Else", "ByPath")
            ]

        assert seen(["Q"], ["default"], "default") == [1, 0, 0]
        assert seen(["*"], ["default"], "default") == [1, 1, 0]
        assert seen(["*"], ["shop"], "shop") == [0, 0, 0]
        assert seen(["*"], ["*"], "default") == [1, 1, 1]
        door.close()


def test_the_client_tells_them(refusing: Sender) -> None:
    refusing.post("Hook", b"{}")

    with skep.Client(refusing.server.url) as client:
        [one] = client.refusals("Hook")

    assert (one.code, one.status, one.queue) == ("SIGNATURE_INVALID", 401, "Q")
