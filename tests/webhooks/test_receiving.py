"""A webhook answers 202 once its message is stored with its receipt; a repeat gets that answer again and stores nothing."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any
from uuid import UUID

import pytest

from skep.config import OperationSettings
from skep.engine import Engine
from tests.engine.driver import until
from tests.http.driver import Api, Reply
from tests.webhooks import signing
from tests.webhooks.driver import OLD_SECRET, SECRET, SIGNED, Sender

ALERTS = f"""
app Alerts {{
  queue Ingress {{
    message_type {{
      payload: json
      headers: map<string, string>
      source_ip: string
      received_at: time
    }}
    ordering: fifo
    retention {{ max_depth: 3 }}
  }}
  webhook Alert {{
    queue: Ingress
    {SIGNED}
    keep_headers: ["X-Kind", "User-Agent"]
  }}
  webhook ByHeader {{
    queue: Ingress
    {SIGNED}
    idempotency {{ header: "X-Request-Id", window: 1h }}
  }}
  webhook ByKey {{
    queue: Ingress
    {SIGNED}
    idempotency {{ key: payload.id }}
  }}
  webhook Always {{
    queue: Ingress
    {SIGNED}
    idempotency: none
  }}
}}
"""


@pytest.fixture
def alerts(sender: Sender) -> Sender:
    sender.apply(ALERTS)
    return sender


def message_of(reply: Reply) -> str:
    assert reply.status == 202, reply
    return str(reply.json["message_id"])


def test_a_webhook_with_a_queue_is_accepted_and_its_message_is_in_the_queue(alerts: Sender) -> None:
    body = b'{"incident": {"id": 7, "title": "fire \xf0\x9f\x94\xa5", "big": 12345678901234567890}}'

    reply = alerts.signed("Alert", body, X_Kind="page", X_Other="no")

    assert reply.status == 202
    key = hashlib.sha256(body).hexdigest()
    assert reply.json == {"queued": True, "idempotency_key": key, "message_id": reply.json["message_id"]}
    [message] = alerts.api.pop("Ingress")
    assert message["id"] == reply.json["message_id"]
    assert UUID(message["id"]).version == 7
    assert message["payload"] == {
        "payload": json.loads(body),
        "headers": {"x-kind": "page"},
        "source_ip": "127.0.0.1",
        "received_at": "2025-06-15T15:06:40Z",
    }


def test_a_payload_is_stored_as_the_bytes_it_came_as(alerts: Sender) -> None:
    body = b'{ "amount": 1.10, "id":12345678901234567890123, "t": "\\u0041" }'

    id_ = message_of(alerts.signed("Alert", body))

    reply = alerts.api.get("/api/v1/pop/queue/Ingress")
    assert id_.encode() in reply.body
    assert b'"payload":' + body in reply.body


async def parked(engine: Engine) -> None:
    """Return once somebody waits for a message."""
    await until(lambda: engine.parked_polls > 0)


def test_a_message_is_handed_at_once_to_whoever_waits_for_it(alerts: Sender) -> None:
    """Criterion 2: visible within 100 ms. The clock stands still, so no timer and no safety poll can have found it."""
    got: list[list[dict[str, Any]]] = []
    waiting = Api(alerts.server, alerts.api.tenant)
    polling = threading.Thread(target=lambda: got.append(waiting.pop("Ingress", query="&wait=true&timeout=20")))
    polling.start()
    alerts.server.run(parked(alerts.server.engine))

    id_ = message_of(alerts.signed("Alert", {"id": 1}))

    polling.join()
    waiting.close()
    assert [message["id"] for message in got[0]] == [id_]


def test_a_wrong_signature_is_refused_and_nothing_is_stored(alerts: Sender) -> None:
    reply = alerts.signed("Alert", {"id": 1}, secret="a guess")

    assert (reply.status, reply.code) == (401, "SIGNATURE_INVALID")
    assert SECRET not in reply.body.decode()
    assert alerts.stored("Ingress") == []


def test_a_signature_is_asked_for_before_anything_is_read(alerts: Sender) -> None:
    for body in (b"not JSON", b"", b'{"a": 1, "a": 2}'):
        assert alerts.post("Alert", body).status == 401
        assert alerts.post("Alert", body, {"X-Signature": "zz"}).code == "SIGNATURE_MALFORMED"
        assert alerts.signed("Alert", body).code == "MALFORMED"
    assert alerts.post("Alert", b"{}", {"X-Signature": "zz"}).status == 400


def test_secrets_are_rotated_without_a_gap(alerts: Sender) -> None:
    assert alerts.signed("Alert", {"id": 1}, OLD_SECRET).status == 202
    assert alerts.signed("Alert", {"id": 2}, SECRET).status == 202


def test_a_repeat_gets_the_recorded_answer_and_stores_nothing(alerts: Sender) -> None:
    first = alerts.signed("ByHeader", {"id": 1}, X_Request_Id="r-1")
    again = alerts.signed("ByHeader", {"id": 2}, X_Request_Id="r-1")
    other = alerts.signed("ByHeader", {"id": 1}, X_Request_Id="r-2")

    assert (again.status, again.body) == (first.status, first.body)
    assert first.json["idempotency_key"] == "r-1"
    assert message_of(other) != message_of(first)
    assert [message["payload"]["id"] for message in alerts.stored("Ingress")] == [1, 1]


def test_a_repeat_gets_the_first_answer_also_while_the_first_is_queued(alerts: Sender) -> None:
    """A server that is too busy queues both ways: while the first waits, and when it is done."""
    engine = alerts.server.engine
    performer = engine.operations._performer
    engine.admission.push.load, performer._settings = 0.0, OperationSettings(drain=False)

    first, again = [alerts.signed("ByKey", {"id": "k", "n": n}) for n in range(2)]
    other = alerts.signed("ByKey", {"id": "other"})
    [waiting, _] = alerts.api.get("/api/v1/operations?status=pending").json["operations"][::-1]
    cancelled = alerts.api.delete(f"/api/v1/operations/{waiting['id']}")
    anew, repeated = [alerts.signed("ByKey", {"id": "k", "n": n}) for n in range(2, 4)]
    performer._settings = OperationSettings()
    alerts.server.run(_performed(engine))
    late = alerts.signed("ByKey", {"id": "k", "n": 4})

    assert (first.status, again.status, other.status, cancelled.status) == (202, 202, 202, 200)
    assert first.body == again.body != other.body
    assert anew.body != first.body
    assert anew.body == repeated.body == late.body
    assert sorted(str(message["payload"]) for message in alerts.stored("Ingress")) == sorted(
        ["{'id': 'other'}", "{'id': 'k', 'n': 2}"]
    )


async def _performed(engine: Engine) -> None:
    engine.operations.wake()
    await until(lambda: not engine.operations.depth and engine.is_quiet)


def test_a_repeat_is_told_by_an_expression_or_by_the_body(alerts: Sender) -> None:
    first = alerts.signed("ByKey", {"id": 5, "try": 1})
    assert alerts.signed("ByKey", {"id": 5, "try": 2}).body == first.body
    assert first.json["idempotency_key"] == "5"

    first = alerts.signed("Alert", {"id": 5})
    assert alerts.signed("Alert", {"id": 5}).body == first.body
    assert alerts.signed("Alert", b'{"id":5}').body != first.body
    assert len(alerts.stored("Ingress")) == 3


def test_a_repeat_names_the_message_that_its_queue_had_already(sender: Sender) -> None:
    """A delivery that is new to the webhook may bring what the queue, by a key of its own, has stored before."""
    sender.apply(f"""
    app Twice {{
      queue Orders {{
        message_type {{ payload: json }}
        idempotency {{ key: string(payload.order) }}
      }}
      webhook Order {{
        queue: Orders
        {SIGNED}
        idempotency {{ header: "X-Delivery" }}
      }}
    }}
    """)
    stored = sender.signed("Order", {"order": 1}, X_Delivery="a").json["message_id"]

    told = [sender.signed("Order", {"order": 1}, X_Delivery="b").json["message_id"] for _ in range(2)]

    assert told == [stored, stored]
    assert sender.stored("Orders") == [{"payload": {"order": 1}}]


def test_a_webhook_may_take_every_request_for_a_new_one(alerts: Sender) -> None:
    first, again = alerts.signed("Always", {"id": 1}), alerts.signed("Always", {"id": 1})

    assert first.json["idempotency_key"] is None
    assert message_of(first) != message_of(again)


def test_webhooks_do_not_share_their_keys(alerts: Sender) -> None:
    first = alerts.signed("ByKey", {"id": "r-1"})
    other = alerts.signed("ByHeader", {"id": "r-1"}, X_Request_Id="r-1")

    assert message_of(first) != message_of(other)


def test_a_key_counts_until_the_end_of_its_window(alerts: Sender) -> None:
    first = alerts.signed("ByHeader", {"id": 1}, X_Request_Id="r-1")
    alerts.clock.advance(3_599)
    assert alerts.signed("ByHeader", {"id": 1}, X_Request_Id="r-1").body == first.body
    alerts.clock.advance(1)
    assert message_of(alerts.signed("ByHeader", {"id": 1}, X_Request_Id="r-1")) != message_of(first)


def test_a_key_counts_for_a_day_unless_another_window_is_said(alerts: Sender) -> None:
    first = alerts.signed("Alert", {"id": 1})
    alerts.clock.advance(86_399)
    assert alerts.signed("Alert", {"id": 1}).body == first.body
    alerts.clock.advance(1)
    assert message_of(alerts.signed("Alert", {"id": 1})) != message_of(first)


def test_a_repeat_must_be_signed_too(alerts: Sender) -> None:
    alerts.signed("ByHeader", {"id": 1}, X_Request_Id="r-1")

    assert alerts.signed("ByHeader", {"id": 1}, "a guess", X_Request_Id="r-1").status == 401


def test_a_missing_key_is_a_bad_request(alerts: Sender) -> None:
    assert alerts.signed("ByHeader", {"id": 1}).status == 400
    assert alerts.signed("ByHeader", {"id": 1}, X_Request_Id="").status == 400
    assert alerts.signed("ByHeader", {"id": 1}, X_Request_Id="x" * 256).status == 400
    assert alerts.signed("ByHeader", {"id": 1}, X_Request_Id="r-1", x_request_id="r-2").status == 400, "given twice"
    reply = alerts.signed("ByKey", {"no": "id"})
    assert (reply.status, reply.code) == (422, "MAPPING_FAILED")
    assert reply.json["error"]["details"]["expression"] == "payload.id"
    assert alerts.stored("Ingress") == []


def test_a_repeat_gets_its_answer_though_the_app_has_changed_and_would_refuse_it(alerts: Sender) -> None:
    first = alerts.signed("Alert", {"id": 1})
    alerts.apply(ALERTS.replace("payload: json", "payload: string"))

    assert alerts.signed("Alert", {"id": 1}).body == first.body
    assert alerts.signed("Alert", {"id": 2}).code == "MESSAGE_INVALID"


def test_a_full_queue_sends_its_webhooks_away_until_there_is_room(alerts: Sender) -> None:
    for number in range(3):
        assert alerts.signed("Alert", {"id": number}).status == 202

    refused = alerts.signed("Alert", {"id": 3})
    assert (refused.status, refused.code) == (503, "QUEUE_FULL")
    assert int(refused.headers["retry-after"]) >= 1
    # What is in the queue already is no news, full or not.
    assert alerts.signed("Alert", {"id": 0}).status == 202

    [message] = alerts.api.pop("Ingress", 1)
    alerts.api.ack(message)
    # The refused one left no receipt behind, so it is taken now.
    assert alerts.signed("Alert", {"id": 3}).status == 202


def test_a_fifo_queue_keeps_the_order_of_each_source(sender: Sender) -> None:
    sender.apply(ALERTS.replace("max_depth: 3", "max_depth: 1000"))
    for number in range(100):
        assert sender.signed("Alert" if number % 2 else "Always", {"n": number}).status == 202

    got = [message["payload"]["payload"]["n"] for message in sender.api.pop("Ingress", 100)]
    assert got == list(range(100))


def test_a_key_divides_a_queue_into_partitions_in_order(sender: Sender) -> None:
    sender.apply(f"""
        app Incidents {{
          queue Events {{
            message_type {{ id: string, n: int }}
            ordering: per_key
            key: id
          }}
          webhook Event {{
            queue: Events
            {SIGNED}
            message {{ id: payload.incident, n: int(payload.n) }}
          }}
        }}
    """)
    for number in range(30):
        assert sender.signed("Event", {"incident": f"i-{number % 3}", "n": number}).status == 202

    messages = sender.api.pop("Events", 100)
    by_partition = {
        name: [m["payload"]["n"] for m in messages if m["partition"] == name] for name in ("i-0", "i-1", "i-2")
    }
    assert by_partition == {f"i-{part}": list(range(part, 30, 3)) for part in range(3)}


def test_a_webhook_that_nobody_declared_is_not_found(alerts: Sender) -> None:
    for path in ("Nobody", "alert", "Alert/tenant", "a%2Fb"):
        reply = alerts.signed(path, {})
        assert (reply.status, reply.code) == (404, "WEBHOOK_NOT_FOUND"), path
    assert alerts.signed("Alert/a/b", {}).code == "ROUTE_NOT_FOUND"


def test_a_webhook_goes_with_its_app(alerts: Sender) -> None:
    assert alerts.api.delete("/api/v1/apps/Alerts").status in (200, 204)

    assert alerts.signed("Alert", {"id": 1}).code == "WEBHOOK_NOT_FOUND"


def test_a_webhook_takes_posts_only(alerts: Sender) -> None:
    for method in ("GET", "PUT", "DELETE", "HEAD", "PATCH"):
        reply = alerts.api.request(method, "/hook/Alert", b"{}")
        assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_a_body_that_is_too_large_is_not_read(alerts: Sender) -> None:
    reply = alerts.post("Alert", b" " * (12 * 1024 * 1024 + 1))

    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")


def test_a_content_type_does_not_matter(alerts: Sender) -> None:
    for number, kind in enumerate(("text/plain", "application/vnd.acme+json", "application/x-www-form-urlencoded")):
        assert alerts.signed("Alert", {"id": number}, Content_Type=kind).status == 202


@pytest.mark.parametrize("body", [b"null", b"7", b'"text"', b"[]", b"{}", b"[" * 99 + b"]" * 99])
def test_any_json_is_a_payload(alerts: Sender, body: bytes) -> None:
    assert alerts.signed("Alert", body).status == 202
    assert [message["payload"] for message in alerts.stored("Ingress")] == [json.loads(body)]


def test_what_is_nested_too_deeply_is_refused(alerts: Sender) -> None:
    reply = alerts.signed("Alert", b"[" * 100 + b"]" * 100)

    assert reply.status == 422
    assert alerts.signed("Alert", b"[" * 100_000).status == 422


def test_requests_are_counted_by_what_became_of_them(alerts: Sender) -> None:
    alerts.signed("Alert", {"id": 1})
    alerts.signed("Alert", {"id": 1})
    alerts.signed("Alert", {"id": 1}, "a guess")
    alerts.signed("Nobody", {"id": 1})

    lines = alerts.api.get("/metrics").body.decode().splitlines()
    found = {line for line in lines if line.startswith("skep_hook_requests_total")}
    assert found == {
        'skep_hook_requests_total{outcome="accepted",webhook="Alert"} 1.0',
        'skep_hook_requests_total{outcome="repeated",webhook="Alert"} 1.0',
        'skep_hook_requests_total{outcome="quarantined",webhook="Alert"} 0.0',
        'skep_hook_requests_total{outcome="refused",webhook="Alert"} 1.0',
    }
    assert 'skep_pushed_messages_total{queue="Ingress",tenant="default"} 1.0' in lines


def test_one_overheard_request_of_github_is_one_message_whatever_its_delivery_id(sender: Sender) -> None:
    """B9: five delivery ids, which nobody signs, made five messages."""
    sender.apply('app A { queue Q {}\n webhook GitHub { queue: Q, verify_github { secret_env: "SECRET" } } }')
    body = b'{"zen": "Design for failure."}'
    overheard = signing.github(body, SECRET, "72d3162e-0", "ping")
    replies = [
        sender.post("GitHub", body, {**overheard, "X-GitHub-Delivery": f"72d3162e-{number}"}) for number in range(5)
    ]
    assert {reply.status for reply in replies} == {202}
    assert len({reply.body for reply in replies}) == 1
    assert len(sender.stored("Q")) == 1
