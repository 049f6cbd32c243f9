"""The language is read as it is documented, and everything wrong with a text is told at once, at its place."""

from __future__ import annotations

import pytest

from skep.model import Ordering, QueueChanges
from skep.spec import App, Severity, SpecError, check, format_spec, load, parse_app
from skep.spec.ir import (
    Algorithm,
    CommandCall,
    Deliver,
    Emit,
    Encoding,
    EventMode,
    Fairness,
    Idempotency,
    IdempotencySource,
    OnInvalid,
    RateLimit,
    Schedule,
    Scheme,
    Tenant,
    TenantSource,
    Then,
    Verify,
)
from skep.spec.types import STRING as STRING_TYPE
from skep.spec.types import Field, enum_of, list_of, optional, parse_field
from tests.spec.incidents import INCIDENTS


def app_of(text: str) -> App:
    parsed = parse_app(text)
    assert parsed.problems == []
    return parsed.app


def test_the_first_sketch_of_the_language_is_valid() -> None:
    app = load(INCIDENTS, "incidents.skep")
    incoming = app.queues["Incoming"]
    assert incoming.settings == QueueChanges(
        ordering=Ordering.FIFO, max_age_seconds=86_400.0, max_depth=10_000, max_attempts=5, initial_backoff_ms=1_000,
        max_backoff_ms=60_000, dead_letter_queue="IncomingDead",
    )  # fmt: skip
    assert incoming.message_type["headers"] == parse_field("map<string, string>")
    assert incoming.map_to is not None
    assert incoming.map_to.fields["severity"] == 'payload.incident.urgency == "high" ? "critical" : "high"'
    assert app.webhooks["Alerts"].verify == Verify(
        scheme=Scheme.HMAC, header="X-PagerDuty-Signature", secret_env=["ALERTS_SECRET"]
    )
    assert check(INCIDENTS, "incidents.skep").problems == []


EVERYTHING = """
app Everything {
  queue "Odd name, quoted" { paused: true; priority: -5, namespace: billing }
  queue Orders {
    message_type {
      id: uuid
      state: enum(open, "on hold", closed) = open
      lines: list<json>
      note: string?
      total: float = 0.5
    }
    extra_fields: allow
    on_invalid: quarantine
    fairness: tenant
    concurrency: 4
    batch: 20
    key: id
    idempotency { key: id + "!", window: 36h }
    retention { max_age: 7d, max_wait: 1.5s, retention_ignores_groups: true }
    delivery { lease: 30s, initial_backoff: 500ms, dedup_window_seconds: 90 }
    rate_limit { count: 100, per: 1m, key: state }
    map_to: command Order.Place {
      // every field of the input
      id: id
      lines: lines.filter(line,
        line.n > 0 &&    # only real ones
        has(line.sku)
      )
      extra: {"a": {"b": [1, 2]}}
    }
    then: queue Mails when (total > 10.0) { to: note != null ? note : "" }
    then: queue Audit {}
  }
  queue Mails {
    message_type { to: string }
    deliver: "https://mail.example/send" {
      headers { "X-Source": "skep", accept: "text/plain" }
      headers_env { "Authorization": "MAIL_TOKEN", "x-key": "MAIL_KEY" }
      secret_env: ["NEW", "OLD"]
      timeout: 5s
    }
  }
  queue Chat { deliver: env "CHAT_URL" { timeout: 5s, cloudevents: structured } }
  queue Audit {}
  webhook Shop {
    command: Order.Place { id: payload.id, lines: payload.lines }
    verify_hmac { header: "X-Sign", secret_env: ["A", "B"], prefix: "sha256=", encoding: base64, algorithm: sha512 }
    idempotency { header: "X-Request-Id" }
    keep_headers: ["x-kind", "user-agent"]
    tenant: header "X-Tenant"
  }
  webhook Bank {
    queue: Audit
    verify_stripe { secret_env: "BANK", tolerance: 10m }
    idempotency_key: payload.id
    tenant: path
    message { id: payload.id }
  }
  webhook Bound { queue: Audit, verify: none, tenant: key payload.shop.id + "-" + string(payload.number) }
  webhook Open { queue: Audit, verify: none, idempotency: none }
  webhook Hashed { queue: Audit, verify: none, idempotency { body_hash: true, window: 1h } }
  entity Order {
    id: input.id
    state { status: enum(new, paid) = new, count: int = 0 }
    command Place {
      input { id: string, lines: list<json>, extra: json? }
      guard: state.count == 0
      emits Placed { n: size(input.lines) }
      emits Large when size(input.lines) > 10 {}
    }
    event Placed { count: state.count + event.n }
  }
  schedule Nightly { cron: "0 3 * * *", timezone: "Europe/Berlin", queue: Mails, message { to: "ops" } }
}
"""


def test_everything_that_can_be_said_is_read() -> None:
    app = app_of(EVERYTHING)
    odd = app.queues["Odd name, quoted"].settings
    assert (odd.paused, odd.priority, odd.namespace) == (True, -5, "billing")
    orders = app.queues["Orders"]
    assert orders.message_type["state"] == Field(enum_of("open", "on hold", "closed"), "open")
    assert orders.message_type["lines"].type == list_of(parse_field("json").type)
    assert orders.message_type["note"] == Field(optional(STRING_TYPE))
    assert orders.message_type["total"].default == 0.5
    assert (orders.on_invalid, orders.fairness, orders.concurrency, orders.batch) == (
        OnInvalid.QUARANTINE, Fairness.TENANT, 4, 20,
    )  # fmt: skip
    assert orders.idempotency == Idempotency(source=IdempotencySource.KEY, value='id + "!"', window_seconds=129_600.0)
    assert orders.settings == QueueChanges(
        max_age_seconds=604_800.0, max_wait_seconds=1.5, retention_ignores_groups=True, lease_seconds=30.0,
        initial_backoff_ms=500, dedup_window_seconds=90.0,
    )  # fmt: skip
    assert orders.rate_limit == RateLimit(count=100, per_seconds=60.0, key="state")
    assert orders.map_to is not None
    assert orders.map_to.fields["lines"] == ("lines.filter(line,\nline.n > 0 &&    # only real ones\nhas(line.sku)\n)")
    assert orders.map_to.fields["extra"] == '{"a": {"b": [1, 2]}}'
    assert orders.then == [
        Then(queue="Mails", when="total > 10.0", fields={"to": 'note != null ? note : ""'}),
        Then(queue="Audit"),
    ]
    assert app.queues["Mails"].deliver == Deliver(
        url="https://mail.example/send",
        headers={"X-Source": "skep", "accept": "text/plain"},
        headers_env={"Authorization": "MAIL_TOKEN", "x-key": "MAIL_KEY"},
        secret_env=["NEW", "OLD"],
        timeout_seconds=5.0,
    )
    assert app.queues["Chat"].deliver == Deliver(
        url_env="CHAT_URL", timeout_seconds=5.0, cloudevents=EventMode.STRUCTURED
    )


def test_everything_of_webhooks_entities_and_schedules_is_read() -> None:
    app = app_of(EVERYTHING)
    shop = app.webhooks["Shop"]
    assert shop.command == CommandCall(
        entity="Order", command="Place", fields={"id": "payload.id", "lines": "payload.lines"}
    )
    assert shop.verify == Verify(
        scheme=Scheme.HMAC, header="X-Sign", secret_env=["A", "B"], prefix="sha256=", encoding=Encoding.BASE64,
        algorithm=Algorithm.SHA512,
    )  # fmt: skip
    assert shop.idempotency == Idempotency(source=IdempotencySource.HEADER, value="X-Request-Id")
    assert shop.tenant == Tenant(source=TenantSource.HEADER, header="X-Tenant")
    bank = app.webhooks["Bank"]
    assert bank.verify == Verify(scheme=Scheme.STRIPE, secret_env=["BANK"], tolerance_seconds=600.0)
    assert (bank.tenant, bank.message) == (Tenant(source=TenantSource.PATH), {"id": "payload.id"})
    assert app.webhooks["Open"].idempotency == Idempotency(source=IdempotencySource.NONE)
    assert app.webhooks["Hashed"].idempotency == Idempotency(source=IdempotencySource.BODY, window_seconds=3600.0)
    place = app.entities["Order"].commands["Place"]
    assert place.emits == [
        Emit(event="Placed", fields={"n": "size(input.lines)"}),
        Emit(event="Large", when="size(input.lines) > 10"),
    ]
    assert app.entities["Order"].events == {"Placed": {"count": "state.count + event.n"}}
    assert app.schedules["Nightly"] == Schedule(
        cron="0 3 * * *", timezone="Europe/Berlin", queue="Mails", message={"to": '"ops"'}
    )
    found = check(EVERYTHING, "everything.skep").problems
    # Nothing is wrong; an id and tenants that are not signed are warned about.
    assert [problem.severity for problem in found] == [Severity.WARNING] * 3


def test_spans_point_at_what_was_written() -> None:
    spans = parse_app(INCIDENTS).spans
    lines = INCIDENTS.splitlines()
    for path, text in {
        ("queues", "Incoming"): "Incoming",
        ("queues", "Incoming", "settings", "max_depth"): "10000",
        ("queues", "Incoming", "map_to", "fields", "source"): '"pagerduty"',
        ("webhooks", "Alerts", "verify", "header"): '"X-PagerDuty-Signature"',
    }.items():
        span = spans[path]
        assert lines[span.line - 1][span.column - 1 :].startswith(text)


def test_a_spec_that_cannot_be_used_is_one_error_with_all_problems() -> None:
    with pytest.raises(SpecError) as caught:
        load(INCIDENTS.replace("fifo", "lifo").replace("5\n", "five\n"), "incidents.skep")
    assert [problem.line for problem in caught.value.problems] == [11, 19]


def test_fmt_refuses_what_it_cannot_read() -> None:
    with pytest.raises(SpecError, match="is not closed"):
        format_spec("app X {")
