"""The validator finds what would fail later, and lets through what the engine lets through."""

from __future__ import annotations

import msgspec
import pytest

from skep.engine.queue_settings import check_settings
from skep.errors import SkepError
from skep.model import QueueChanges
from skep.model.queue_settings import SETTINGS, SettingKind
from skep.spec import App, Severity, check, load, parse_app, print_app, secret_problems, validate
from skep.spec.ir import Check, Idempotency, IdempotencySource, OnFail, Queue, Scheme, Then, Verify, Webhook
from skep.spec.secrets import secret_uses
from skep.spec.types import parse_field
from skep.spec.validate_webhook import effective_idempotency
from tests.spec.incidents import INCIDENTS


def complaints(app: App) -> list[str]:
    return [problem.message for problem in validate(app) if problem.severity is Severity.ERROR]


def test_the_ranges_are_the_engines() -> None:
    numbers = [setting for setting in SETTINGS.values() if setting.kind in (SettingKind.WHOLE, SettingKind.SECONDS)]
    assert {setting.name for setting in numbers} >= {"priority", "lease_seconds", "max_attempts", "max_backoff_ms"}
    for setting in numbers:
        least = 0.001 if setting.above_zero else setting.least
        for value, fine in ((least, True), (setting.most, True), (least - 1, False), (setting.most + 1, False)):
            number = float(value) if setting.kind is SettingKind.SECONDS else int(value)
            changes = msgspec.structs.replace(QueueChanges(), **{setting.name: number})
            assert (not complaints(App(name="a", queues={"q": Queue(settings=changes)}))) is fine, (setting.name, value)
            assert is_fine_for_the_engine(changes) is fine, (setting.name, value)


def is_fine_for_the_engine(changes: QueueChanges) -> bool:
    try:
        check_settings(changes)
    except SkepError:
        return False
    return True


def dead(**queues: str | None) -> App:
    """Queues with the dead-letter queues they name."""
    return App(
        name="a",
        queues={
            name: Queue(settings=QueueChanges(dead_letter_queue=target) if target else QueueChanges())
            for name, target in queues.items()
        },
    )


@pytest.mark.parametrize(
    ("app", "told"),
    [
        (dead(a="b", b=None), ""),
        (dead(a="b", b="none"), ""),
        (dead(a="b", c="b"), ""),
        (dead(a="a"), "its own dead-letter queue"),
        (dead(a="b", b="c"), "'b' is the dead-letter queue of 'a'"),
        (dead(a="b", b="a"), "is the dead-letter queue of"),
        (App(name="a", queues={"q" * 255: Queue()}), "no room"),
        (App(name="a", queues={"q" * 255: Queue(settings=QueueChanges(dead_letter_queue="none"))}), ""),
        (
            App(name="a", queues={"a": Queue(), "a.dead": Queue(settings=QueueChanges(dead_letter_queue="b"))}),
            "'a.dead' is",
        ),
    ],
)
def test_dead_letters_never_go_in_chains(app: App, told: str) -> None:
    found = complaints(app)
    assert any(told in message for message in found) if told else found == []


def chained(**queues: list[str]) -> App:
    return App(
        name="a", queues={name: Queue(then=[Then(queue=to) for to in targets]) for name, targets in queues.items()}
    )


def test_circles_are_found_and_diamonds_are_none() -> None:
    assert complaints(chained(a=["b", "c"], b=["d"], c=["d"], d=[])) == []
    assert complaints(chained(a=["b"], b=["c"], c=["b"])) == ["messages would go round for ever: b → c → b"]
    assert complaints(chained(a=["a"])) == ["messages would go round for ever: a → a"]


def test_many_ways_through_the_queues_cost_no_time() -> None:
    layers = {f"q{i}{side}": [f"q{i + 1}a", f"q{i + 1}b"] for i in range(200) for side in "ab"}
    assert complaints(chained(**layers, q200a=[], q200b=[])) == []


@pytest.mark.parametrize(
    ("cron", "zone", "told"),
    [
        ("*/5 * * * *", "UTC", ""),
        ("0 9 * * 1-5", "Europe/Berlin", ""),
        ("0 9 * *", "UTC", "not a cron expression"),
        ("99 * * * *", "UTC", "not a cron expression"),
        ("*/10 * * * * *", "UTC", "not a cron expression"),
        ("0 9 * * * 1", "UTC", "not a cron expression"),
        ("0 0 30 2 *", "UTC", "not a cron expression|never comes"),
        ("0 0 * * *", "Mars/Olympus", "no time zone"),
        ("0 0 * * *", "../../etc/passwd", "no time zone"),
        ("", "UTC", "not a cron expression"),
    ],
)
def test_schedules_come_at_times_that_exist(cron: str, zone: str, told: str) -> None:
    text = f'app A {{ queue Q {{}}\n schedule S {{ cron: "{cron}", timezone: "{zone}", queue: Q }} }}'
    rendered = "\n".join(check(text, "a.skep").rendered)
    assert any(part in rendered for part in told.split("|")) if told else rendered == ""


ORDER = """\
app A {
  entity Order {
    id: input.id
    state { status: enum(new, paid) = new, total: float?, paid_at: time }
    command Pay {
      input { id: string, amount: float, note: string? }
      guard: state.status == "new" && input.amount > 0.0
      emits Paid { amount: input.amount, at: now }
    }
    command Reset {
      input { id: string }
      emits Paid { amount: 0.0 }
    }
    event Paid {
      status: "paid"
      total: event.amount
      paid_at: event.at != null ? event.at : state.paid_at
    }
  }
  queue Payments {
    message_type { order: string, amount: float }
    map_to: command Order.Pay { id: order, amount: amount }
  }
}
"""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("", "", ""),
        ('"new" && input', '"old" && input', "'old' is not one of"),
        ("input.amount > 0.0", "input.amount > 0", "float and int"),
        ("amount: input.amount, at", "amount: input.amuont, at", "no field 'amuont'"),
        ("total: event.amount", "totl: event.amount", "no field of the state 'totl'"),
        ("total: event.amount", "total: event.amuont", "no field 'amuont'"),
        ('status: "paid"', 'status: "payed"', "'payed' is not one of"),
        ("total: event.amount", "total: event.at", "this is time"),
        ("Order.Pay {", "Order.Pya {", "no command of Order 'Pya'"),
        ("id: order, amount: amount", "id: order", "amount is missing"),
        ("id: order, amount", "id: amount, amount", "this is float"),
        ("id: order,", "id: order, note: 5,", "this is int"),
        ("id: input.id", "id: input.uid", "no field 'uid'"),
        ("guard: state", "guard: stat", "no field 'stat'"),
        ('= new, total', "= old, total", "the default 'old'"),
        ("Order.Pay {", "Ordr.Pay {", "'Ordr' is not declared"),
    ],
)  # fmt: skip
def test_commands_and_events_are_typed(right: str, wrong: str, told: str) -> None:
    assert right in ORDER
    rendered = check(ORDER.replace(right, wrong, 1), "a.skep").rendered
    assert rendered == [] if not told else any(told in problem for problem in rendered)


def test_a_webhook_fills_the_message_it_pushes() -> None:
    typed = INCIDENTS.replace("source_ip: string", "source_ip: string\n      region: string")
    assert "requires 'region'" in check(typed, "a.skep").rendered[0]
    assert check(typed.replace("region: string", 'region: string = "eu"'), "a.skep").rendered == []
    mapped = typed.replace(
        "queue: Incoming  // not at once",
        'queue: Incoming\n message { payload: payload, headers: headers, source_ip: source_ip, received_at: received_at, region: "eu" }',
    )
    assert check(mapped, "a.skep").rendered == []
    assert (
        "is int, here it is string" in check(INCIDENTS.replace("source_ip: string", "source_ip: int"), "a").rendered[0]
    )


def test_a_webhook_without_a_signature_is_warned_about() -> None:
    text = "app A { queue Q {}\n webhook W { queue: Q } }"
    (problem,) = check(text, "a.skep").problems
    assert (problem.severity, check(text, "a.skep").usable) == (Severity.WARNING, True)
    assert check(text.replace("queue: Q }", "queue: Q, verify: none }"), "a.skep").problems == []


def test_secrets_that_are_missing_are_told_where_they_are_named() -> None:
    parsed = parse_app(INCIDENTS)
    assert [use.variable for use in secret_uses(parsed.app)] == ["ALERTS_SECRET"]
    (problem,) = secret_problems(parsed.app, {"ALERTS_SECRET": ""}, parsed.spans)
    assert (problem.message, problem.line) == ("the environment has neither ALERTS_SECRET nor ALERTS_SECRET_FILE", 50)
    assert secret_problems(parsed.app, {"ALERTS_SECRET": "x" * 16}) == []


def test_repeats_are_told_by_what_the_sender_signs() -> None:
    github = Webhook(queue="q", verify=Verify(scheme=Scheme.GITHUB, secret_env=["A"]))
    assert effective_idempotency(github).source is IdempotencySource.BODY
    standard = Webhook(queue="q", verify=Verify(scheme=Scheme.STANDARD_WEBHOOKS, secret_env=["A"]))
    assert effective_idempotency(standard).value == "webhook-id"
    assert effective_idempotency(Webhook(queue="q")).source is IdempotencySource.BODY
    own = Idempotency(source=IdempotencySource.NONE)
    assert effective_idempotency(msgspec.structs.replace(github, idempotency=own)) == own


def test_an_app_built_in_python_is_validated_by_path() -> None:
    queue = Queue(message_type={"id": parse_field("string")}, key="idd", concurrency=0)
    problems = validate(App(name="a", queues={"q": queue}))
    assert [(problem.path, problem.line) for problem in problems] == [
        (("queues", "q", "key"), 0), (("queues", "q", "concurrency"), 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('deliver: "https://x.example/a"', ""),
        ('deliver: "ftp://x.example"', "not an address"),
        ('deliver: "https://"', "not an address"),
        ('deliver: "https://x.example:99999/"', "not an address"),
        ('deliver: "https://x.example" { headers { "a b": "c" } }', "name of a header"),
        ('deliver: "https://x.example" { timeout: 1h }', "timeout is out of range"),
        ("concurrency: 0", "concurrency is out of range"),
        ("batch: 100000", "batch is out of range"),
        ("rate_limit { count: 0, per: 1m }", "count is out of range"),
        ("rate_limit { count: 5, per: 7d }", "per is out of range"),
        ("rate_limit { count: 5 }", "not whole"),
        ("idempotency { header: \"x\" }", "by an expression"),
        ("idempotency { key: message.id, window: 0s }", "window is out of range"),
        ("ordering: fifo, key: message.id", "a key means nothing"),
        ("on_invalid: quarantine, delivery { dead_letter_queue: none }, message_type { a: int }", "for the quarantine"),
        ('deliver: "https://x.example"\n map_to: command A.B {}', "not both"),
        ("key: message.at > timestamp(0)", "a key cannot be bool"),
        ("message_type { a: string? }, key: a", "a key cannot be null"),
        ('message_type { a: string? }, key: a != null ? a : "none"', ""),
        ('message_type { a: string? }, key: null == a ? "none" : a', ""),
        ('message_type { a: string? }, key: a == null ? a : "none"', "a key cannot be null"),
    ],
)  # fmt: skip
def test_queues_are_held_to_what_makes_sense(line: str, told: str) -> None:
    rendered = check(f"app A {{ queue Q {{\n {line}\n }} }}", "a.skep").rendered
    assert rendered == [] if not told else any(told in problem for problem in rendered)


CHECKED = """
app Shop {
  queue Orders {
    message_type {
      cents: int
    }
    check Positive {
      holds: cents > 0
      on_fail: drop
    }
    check Small {
      holds: cents < 100000
    }
  }
}
"""


def test_checks_are_read_with_their_default() -> None:
    checks = load(CHECKED, "shop.skep").queues["Orders"].checks
    assert checks == {
        "Positive": Check(holds="cents > 0", on_fail=OnFail.DROP),
        "Small": Check(holds="cents < 100000", on_fail=OnFail.WARN),
    }


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("cents > 0", "cents + 1", "this is int"),
        ("cents > 0", "euros > 0", "no field 'euros'"),
        ("on_fail: drop", "on_fail: ignore", "not known here"),
        ("holds: cents < 100000", "", "says nothing"),
        ("check Small", "check Positive", "two of check"),
        ("check Small", "check", "has no name"),
        ('check Small', 'check "a b"', "cannot name a check"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_checks_is_told(before: str, after: str, told: str) -> None:
    found = check(CHECKED.replace(before, after), "shop.skep")
    assert any(told in text for text in found.rendered)


HOOK = "app A {{ queue Q {{}}\n webhook W {{ queue: Q\n {} }} }}"
GITHUB = 'verify_github { secret_env: "S" }'
STANDARD = 'verify_standard_webhooks { secret_env: "S", tolerance: 5m }'


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (GITHUB, ""),
        (f'{GITHUB}\n idempotency {{ header: "X-GitHub-Delivery" }}', "does not cover that header"),
        (f'{GITHUB}\n idempotency {{ key: headers["x-id"] }}', "does not cover that header"),
        (f"{GITHUB}\n idempotency {{ key: payload.id }}", ""),
        (f'{STANDARD}\n idempotency {{ header: "Webhook-Id" }}', ""),
        (f'{STANDARD}\n idempotency {{ header: "X-Id" }}', "does not cover that header"),
        ('verify: none\n idempotency { header: "X-Id" }', ""),
        (f"{STANDARD}\n idempotency {{ key: payload.id, window: 10m }}", ""),
        (f"{STANDARD}\n idempotency {{ key: payload.id, window: 9m }}", "posted again"),
        ('verify_stripe { secret_env: "S", tolerance: 20h }', "posted again"),
        (f"{GITHUB}\n idempotency {{ key: payload.id, window: 1m }}", ""),
        (f"{GITHUB}\n tenant: path", "does not cover the path"),
        (f'{STANDARD}\n tenant: header "X-Shop"', "does not cover the header"),
        (f"{GITHUB}\n tenant: key payload.shop", ""),
        ("verify: none\n tenant: path", ""),
    ],
)
def test_what_no_signature_covers_is_warned_about(parts: str, told: str) -> None:
    found = check(HOOK.format(parts), "a.skep")
    assert found.usable
    assert [told in problem.message for problem in found.problems] == ([True] if told else [])


def test_a_tenant_is_told_by_what_is_signed_and_nothing_else() -> None:
    for key in ("headers.x", "source_ip", "payload.shop == 1", "payload."):
        assert not check(HOOK.format(f"{GITHUB}\n tenant: key {key}"), "a.skep").usable


@pytest.mark.parametrize(
    ("deliver", "told"),
    [
        (
            '"https://a.example/x" { headers { "Authorization": "Bearer x" } }',
            "what looks like a secret stands in the spec",
        ),
        ('"https://a.example/x" { headers { "X-Api-Key": "x" } }', "what looks like a secret stands in the spec"),
        ('"https://ann:x@a.example/x"', "a password stands in the spec"),
        ('"https://a.example/x" { headers_env { "Authorization": "TOKEN" } }', ""),
        ('env "ADDRESS" { headers { "X-Source": "x" } }', ""),
    ],
)
def test_secrets_that_stand_in_a_spec_are_warned_about(deliver: str, told: str) -> None:
    found = check(f"app A {{ queue Q {{ deliver: {deliver} }} }}", "a.skep")
    assert found.usable
    assert [told in problem.message for problem in found.problems] == ([True] if told else [])


@pytest.mark.parametrize(
    ("deliver", "told"),
    [
        ('env "NO SUCH"', "cannot name a variable"),
        ('"https://a.example" { headers_env { "X-A": "NO SUCH" } }', "cannot name a variable"),
        ('"https://a.example" { headers_env { "a b": "TOKEN" } }', "name of a header"),
        ('"https://a.example" { headers { "x-a": "b" }, headers_env { "X-A": "TOKEN" } }', "two headers"),
    ],
)
def test_what_names_no_secret_is_refused(deliver: str, told: str) -> None:
    found = check(f"app A {{ queue Q {{ deliver: {deliver} }} }}", "a.skep")
    assert not found.usable
    assert told in found.problems[0].message


OURS = "and a secret to sign with has 24 to 64: `skep webhook secret` makes one"


def test_every_secret_is_named_where_it_stands_and_short_ones_are_told() -> None:
    text = """app A {
      queue Q {
        deliver: env "ADDRESS" {
          headers_env { "Authorization": "TOKEN" }
          secret_env: "KEY"
        }
      }
      webhook W { queue: Q, verify_github { secret_env: "S" } }
    }"""
    parsed = parse_app(text)
    assert parsed.problems == []
    assert [use.variable for use in secret_uses(parsed.app)] == ["S", "ADDRESS", "KEY", "TOKEN"]
    environment = {"ADDRESS": "https://a.example/x", "TOKEN": "x", "KEY": "c2hvcnQ=", "S": "x"}
    assert [(problem.line, problem.message) for problem in secret_problems(parsed.app, environment, parsed.spans)] == [
        (8, "the secret in S is too short: it has 1 bytes, and 16 are the least"),
        (5, f"the secret in KEY has 5 bytes once it is decoded, {OURS}"),
    ]
    assert load(print_app(parsed.app), "b.skep") == parsed.app
