"""The examples are right: they check clean, are laid out as `fmt` would, and do with a payload what they say."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from skep.spec import (
    App,
    ExpressionError,
    apply_mapping,
    check,
    compile_expression,
    compile_mapping,
    compile_validator,
    evaluate,
    format_spec,
    from_json,
    from_toml,
    load,
    misfit,
    misfit_of,
    print_app,
    to_json,
    to_toml,
)
from skep.spec.functions import IMPLEMENTATIONS
from skep.spec.signatures import FUNCTIONS
from skep.spec.variables import WEBHOOK, event_fields, of_command, of_event, of_queue, of_then

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.skep"))
PAGE = (ROOT / "docs/spec.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SPECS = [text for language, text in BLOCKS if language == "skep"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_right(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert check(text, path.name).rendered == []
    assert format_spec(text) == text
    app = load(text, path.name)
    assert load(print_app(app), "printed.skep") == from_json(to_json(app)) == from_toml(to_toml(app)) == app


@pytest.mark.parametrize("text", SPECS, ids=range(len(SPECS)))
def test_a_spec_in_the_documentation_is_right(text: str) -> None:
    assert check(text, "docs/spec.md").rendered == []
    assert format_spec(text) == text


def test_the_documented_toml_is_the_documented_spec() -> None:
    (toml,) = [text for language, text in BLOCKS if language == "toml"]
    app = from_toml(toml)
    assert check(toml, "spec.toml").rendered == []
    assert app == load(SPECS[0], "docs/spec.md")


def test_the_documented_errors_are_what_is_told() -> None:
    wrong = SPECS[0].replace("key: customer", "key: custmer").replace("max_attempts", "max_atempts")
    assert "\n".join(check(wrong, "orders.skep").rendered) + "\n" in [
        text for language, text in BLOCKS if language == "text"
    ]


def test_every_function_is_documented() -> None:
    assert [name for name in FUNCTIONS if f"`{name}" not in PAGE and f".{name}(" not in PAGE] == []
    assert FUNCTIONS.keys() <= IMPLEMENTATIONS.keys()


def example(name: str) -> App:
    return load((ROOT / "examples" / f"{name}.skep").read_text(encoding="utf-8"), name)


def received(app: App, webhook: str, payload: object, **headers: str) -> dict[str, object]:
    """What a webhook pushes for a payload; it fits the queue."""
    given: dict[str, object] = {
        "payload": payload, "headers": headers, "source_ip": "192.0.2.1", "received_at": "2026-03-01T10:00:00Z",
        "tenant": "default",
    }  # fmt: skip
    hook = app.webhooks[webhook]
    assert hook.queue is not None
    queue = app.queues[hook.queue]
    if hook.message:
        message = apply_mapping(compile_mapping(hook.message, WEBHOOK, queue.message_type), given)
    else:
        message = {name: given[name] for name in queue.message_type}
    validator = compile_validator(queue.message_type, queue.extra_fields)
    assert misfit(validator, msgspec.json.encode(message)) is None
    return validator_defaults(app, hook.queue, message)


def validator_defaults(app: App, queue: str, message: dict[str, object]) -> dict[str, object]:
    fields = app.queues[queue].message_type
    return {name: field.default for name, field in fields.items() if isinstance(field.default, bool)} | message


def mapped(app: App, queue: str, message: dict[str, object]) -> dict[str, object]:
    """The input of the command that a message becomes; it fits the command, and its guard lets it through."""
    call = app.queues[queue].map_to
    assert call is not None
    entity = app.entities[call.entity]
    command = entity.commands[call.command]
    given = apply_mapping(compile_mapping(call.fields, of_queue(app.queues[queue]), command.input), message)
    assert misfit_of(compile_validator(command.input), given) is None
    if command.guard is not None:
        initial = {name: field.default for name, field in entity.state.items() if not field.required}
        state = {name: None if isinstance(value, msgspec.UnsetType) else value for name, value in initial.items()}
        guard = compile_expression(command.guard, of_command(entity, command))
        assert evaluate(guard, {"input": given, "state": state, "now": "2026-03-01T10:00:00Z"}) is True
    return given


def followed(app: App, queue: str, message: dict[str, object]) -> dict[str, dict[str, object]]:
    """The messages for other queues that a message leads to; they fit them."""
    variables = of_then(app.queues[queue])
    found: dict[str, dict[str, object]] = {}
    for then in app.queues[queue].then:
        if then.when is None or evaluate(compile_expression(then.when, variables), message) is True:
            target = app.queues[then.queue].message_type
            found[then.queue] = apply_mapping(compile_mapping(then.fields, variables, target), message)
            assert misfit_of(compile_validator(target), found[then.queue]) is None
    return found


def test_a_pagerduty_alert_becomes_an_incident() -> None:
    app = example("incidents")
    event = {
        "id": "01EVT", "event_type": "incident.triggered", "occurred_at": "2026-03-01T09:59:59.000Z",
        "data": {"id": "PGR0VU2", "type": "incident", "title": "db down", "urgency": "high", "service": {"summary": "api"}},
    }  # fmt: skip
    message = received(app, "PagerDuty", {"event": event})
    assert mapped(app, "Alerts", message) == {
        "incident_id": "PGR0VU2", "kind": "incident.triggered", "title": "db down", "severity": "critical", "service": "api",
        "occurred_at": "2026-03-01T09:59:59Z",
    }  # fmt: skip
    assert followed(app, "Alerts", message) == {"Pages": {"incident_id": "PGR0VU2", "text": "incident: db down"}}


def test_a_payload_of_another_shape_is_an_error_that_names_field_and_value() -> None:
    app = example("incidents")
    message = received(app, "PagerDuty", {"event": {"data": {"id": "P1"}}})
    with pytest.raises(ExpressionError, match="no field 'event_type'") as caught:
        mapped(app, "Alerts", message)
    assert (caught.value.details["field"], caught.value.details["value"]) == ("kind", "{'data': {'id': 'P1'}}")


def test_an_order_is_recorded_shipped_and_mailed() -> None:
    app = example("shop")
    message = received(app, "Checkout", {
        "id": "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d", "customer": {"id": "c-1"}, "status": "paid", "total_cents": 1000,
        "lines": [{"sku": "tea", "quantity": 2}, {"sku": "cup", "quantity": 0}], "coupon": "TENOFF",
    })  # fmt: skip
    assert mapped(app, "Orders", message)["total_cents"] == 900
    then = followed(app, "Orders", message)
    assert then["Shipments"]["parcels"] == [{"sku": "tea", "count": 2}]
    assert then["Shipments"]["ship_by"] == "2026-03-04T10:00:00Z"
    assert then["Mails"]["subject"] == "your order 0190a7c4 is paid"
    assert mapped(app, "Mails", then["Mails"]) == {"to": "c-1", "subject": "your order 0190a7c4 is paid"}


def test_a_pull_request_and_a_push_go_their_ways() -> None:
    app = example("github")
    repository, sender = {"full_name": "skep/skep"}, {"login": "ada"}
    opened = {
        "action": "closed", "number": 7, "repository": repository, "sender": sender,
        "pull_request": {"title": "Faster", "user": {"login": "ada"}, "merged": True},
    }  # fmt: skip
    then = followed(app, "Events", received(app, "GitHub", opened, **{"x-github-event": "pull_request"}))
    assert mapped(app, "PullRequests", then["PullRequests"])["status"] == "merged"
    pushed = {
        "ref": "refs/heads/main", "after": "f00", "repository": repository, "sender": sender,
        "commits": [{"author": {"name": "Ada"}}],
    }  # fmt: skip
    then = followed(app, "Events", received(app, "GitHub", pushed, **{"x-github-event": "push"}))
    assert then == {"Builds": {"repository": "skep/skep", "commit": "f00", "authors": ["Ada"]}}
    assert followed(app, "Events", received(app, "GitHub", {"zen": "…"}, **{"x-github-event": "ping"})) == {}


def test_a_payment_is_recorded() -> None:
    app = example("stripe")
    message = received(app, "Stripe", {
        "id": "evt_1", "type": "payment_intent.succeeded", "created": 1767225600, "livemode": False,
        "data": {"object": {"id": "pi_1", "amount": 2000, "currency": "eur", "customer": None}},
    })  # fmt: skip
    assert message["created_at"] == "2026-01-01T00:00:00Z"
    assert mapped(app, "StripeEvents", message) == {
        "payment_id": "pi_1", "status": "succeeded", "amount": 2000, "currency": "EUR", "at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    key = app.queues["StripeEvents"].key or ""
    assert evaluate(compile_expression(key, of_queue(app.queues["StripeEvents"])), message) == "evt_1"


def test_a_mention_becomes_a_request() -> None:
    app = example("slack")
    event = {"type": "app_mention", "user": "U1", "text": "<@U0SKEPBOT> deploy ASAP", "channel": "C1"}
    message = received(app, "Slack", {"type": "event_callback", "event_id": "Ev1", "event": event})
    assert mapped(app, "Mentions", message) == {
        "request_id": "Ev1", "channel": "C1", "person": "U1", "question": "deploy ASAP", "urgent": True,
    }  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_event_of_an_example_can_be_compiled_for_its_state(path: Path) -> None:
    app = load(path.read_text(encoding="utf-8"), path.name)
    for entity in app.entities.values():
        emitted = event_fields(entity)
        for event, assignments in entity.events.items():
            mapping = compile_mapping(assignments, of_event(entity, emitted[event]), entity.state)
            assert len(mapping.fields) == len(assignments)
