"""Real payloads pass through the specs in `examples/`: verified as their sender signs, made the message the spec says, once."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from tests.webhooks import samples, signing
from tests.webhooks.driver import SECRETS, Sender


def body_of(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


@pytest.fixture
def incidents(sender: Sender) -> Sender:
    sender.apply_example("incidents")
    return sender


def test_pagerduty(incidents: Sender) -> None:
    secret = SECRETS["PAGERDUTY_WEBHOOK_SECRET"]
    body = body_of(samples.pagerduty())
    first = incidents.post("PagerDuty", body, signing.pagerduty(body, "their next one", secret))
    later = body_of(samples.pagerduty(event_id="01BZCBL0FM0000000000000001", kind="incident.resolved"))

    assert first.status == 202
    assert first.json["idempotency_key"] == "01BZCBL0FM0000000000000000"
    assert incidents.post("PagerDuty", later, signing.pagerduty(later, secret)).status == 202
    # PagerDuty tries again with the same event.
    assert incidents.post("PagerDuty", body, signing.pagerduty(body, secret)).body == first.body
    assert incidents.post("PagerDuty", body, signing.pagerduty(later, secret)).status == 401

    messages = incidents.api.pop("Alerts")
    assert [message["partition"] for message in messages] == ["PGR0VU2", "PGR0VU2"]
    assert messages[0]["payload"] == {
        "payload": json.loads(body),
        "headers": {"x-webhook-subscription": "PGFLZFG", "user-agent": "PagerDuty-Webhook/V3.0"},
        "source_ip": "127.0.0.1",
        "received_at": "2025-06-15T15:06:40Z",
    }
    assert [message["payload"]["payload"]["event"]["event_type"] for message in messages] == [
        "incident.triggered",
        "incident.resolved",
    ]


def test_pagerduty_sends_what_is_no_incident_to_the_quarantine(incidents: Sender) -> None:
    ping = body_of(
        {"event": {"id": "01PING", "event_type": "pagey.ping", "data": {"message": "Hello", "type": "ping"}}}
    )

    reply = incidents.post("PagerDuty", ping, signing.pagerduty(ping, SECRETS["PAGERDUTY_WEBHOOK_SECRET"]))

    assert reply.json["quarantined"]
    [letter] = incidents.dead("AlertsDead")
    assert letter["error"] == "the key of 'Alerts' has no value: there is no field 'id'"


def test_github(sender: Sender) -> None:
    sender.apply_example("github")
    sent = [
        ("ping", samples.github_ping()),
        ("push", samples.github_push()),
        ("pull_request", samples.github_pull_request()),
    ]
    for number, (event, value) in enumerate(sent):
        body = body_of(value)
        headers = signing.github(body, SECRETS["GITHUB_WEBHOOK_SECRET"], f"72d3162e-{number}", event)
        first = sender.post("GitHub", body, headers)
        assert first.status == 202
        assert first.json["idempotency_key"] == sha256(body).hexdigest()
        assert sender.post("GitHub", body, headers).body == first.body
        assert sender.post("GitHub", body, {**headers, "X-Hub-Signature-256": "sha256=" + "0" * 64}).status == 401

    messages = [message["payload"] for message in sender.api.pop("Events")]
    kinds = {message["kind"]: (message["repository"], message["sender"]) for message in messages}
    assert kinds == {
        "ping": ("none", "octocat"),
        "push": ("Codertocat/Hello-World", "Codertocat"),
        "pull_request": ("Codertocat/Hello-World", "Codertocat"),
    }
    [push] = [message for message in messages if message["kind"] == "push"]
    assert push["payload"] == samples.github_push()


def test_stripe(sender: Sender) -> None:
    sender.apply_example("stripe")
    body = body_of(samples.stripe())
    secret, before = SECRETS["STRIPE_WEBHOOK_SECRET"], SECRETS["STRIPE_WEBHOOK_SECRET_OLD"]

    first = sender.post("Stripe", body, signing.stripe(body, secret, sender.seconds))
    assert first.status == 202
    assert first.json["idempotency_key"] == "evt_3MtwBwLkdIwHu7ix28a3tqPa"
    # Stripe signs each try anew, and with the old secret too while it is being changed.
    assert sender.post("Stripe", body, signing.stripe(body, before, sender.seconds + 60)).body == first.body
    replayed = sender.post("Stripe", body, signing.stripe(body, secret, sender.seconds - 301))
    assert (replayed.status, replayed.code) == (401, "SIGNATURE_INVALID")

    [message] = sender.api.pop("StripeEvents")
    assert message["payload"] == {
        "event_id": "evt_3MtwBwLkdIwHu7ix28a3tqPa",
        "kind": "payment_intent.succeeded",
        "created_at": "2026-03-01T13:50:00Z",
        "live": False,
        "object": samples.stripe()["data"]["object"],
    }
    assert message["partition"] == "cus_NeZwdNtLEOXuvB"
    assert message["transactionId"] == "evt_3MtwBwLkdIwHu7ix28a3tqPa"


def test_slack(sender: Sender) -> None:
    sender.apply_example("slack")
    secret = SECRETS["SLACK_SIGNING_SECRET"]
    body = body_of(samples.slack_mention())

    first = sender.post("Slack", body, signing.slack(body, secret, sender.seconds))
    assert first.status == 202
    assert sender.post("Slack", body, signing.slack(body, secret, sender.seconds)).body == first.body
    headers = signing.slack(body, secret, sender.seconds)
    sender.clock.advance(301)
    assert sender.post("Slack", body, headers).status == 401

    [message] = sender.api.pop("Mentions")
    assert message["payload"] == {"payload": json.loads(body), "received_at": "2025-06-15T15:06:40Z"}
    assert message["partition"] == "C123ABC456"


def test_slack_reads_its_challenge_back(sender: Sender) -> None:
    sender.apply_example("slack")
    body = body_of(samples.slack_challenge())

    reply = sender.post("Slack", body, signing.slack(body, SECRETS["SLACK_SIGNING_SECRET"], sender.seconds))

    assert (reply.status, reply.json) == (200, {"challenge": samples.slack_challenge()["challenge"]})
    assert sender.post("Slack", body).status == 401
    assert sender.api.pop("Mentions") == []


def test_a_shop_by_standard_webhooks_with_its_tenant_in_the_body(sender: Sender) -> None:
    sender.apply_example("shop")
    order: dict[str, Any] = {
        "id": "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d",
        "shop": "north",
        "customer": {"id": "c-1"},
        "status": "paid",
        "lines": [{"sku": "mug", "quantity": 2}],
        "total_cents": 1990,
    }
    body = body_of(order)
    headers = signing.standard(body, SECRETS["CHECKOUT_SECRET"], sender.seconds, "msg_2")

    first = sender.post("Checkout", body, headers)
    assert first.status == 202
    assert first.json["idempotency_key"] == "msg_2"
    assert sender.post("Checkout", body, headers).body == first.body

    [message] = sender.stored("Orders", "north")
    assert message["order_id"] == order["id"]
    assert (message["coupon"], message["placed_at"]) == (None, "2025-06-15T15:06:40Z")
    headers["webhook-id"] = "msg_3"
    assert sender.post("Checkout", body, headers).status == 401
