"""A message that does not fit its queue is refused with the field and the value, or kept among the dead letters."""

from __future__ import annotations

import pytest

from tests.webhooks.driver import SIGNED, Sender

TYPED = f"""
app Invoices {{
  queue Invoices {{
    message_type {{
      number: string
      cents: int
    }}
    key: number
    on_invalid: ON_INVALID
    delivery {{ dead_letter_queue: Odd }}
  }}
  queue Odd {{}}
  webhook Invoice {{
    queue: Invoices
    {SIGNED}
    keep_headers: ["X-Kind"]
    message {{
      number: payload.number
      cents: payload.cents
    }}
  }}
  webhook Keyed {{
    queue: Invoices
    {SIGNED}
    idempotency {{ key: payload.id }}
    message {{
      number: payload.number
      cents: payload.cents
    }}
  }}
}}
"""


@pytest.fixture
def refusing(sender: Sender) -> Sender:
    sender.apply(TYPED.replace("ON_INVALID", "refuse"))
    return sender


@pytest.fixture
def keeping(sender: Sender) -> Sender:
    sender.apply(TYPED.replace("ON_INVALID", "quarantine"))
    return sender


def test_a_mapped_message_fits_and_says_where_it_came_from(refusing: Sender) -> None:
    assert refusing.signed("Invoice", {"number": "R-1", "cents": 5}, X_Kind="new").status == 202

    [message] = refusing.api.pop("Invoices")
    assert message["payload"] == {"number": "R-1", "cents": 5}
    assert message["partition"] == "R-1"
    assert message["headers"] == {
        "x-kind": "new",
        "source-ip": "127.0.0.1",
        "received-at": "2025-06-15T15:06:40Z",
    }


def test_a_message_of_another_type_is_refused_with_its_field_and_value(refusing: Sender) -> None:
    reply = refusing.signed("Invoice", {"number": "R-1", "cents": "five"})

    assert (reply.status, reply.code) == (422, "MESSAGE_INVALID")
    assert reply.json["error"]["message"] == "Field 'cents' does not fit: expected int, not \"five\"."
    details = reply.json["error"]["details"]
    assert (details["field"], details["value"], details["expected"]) == ("cents", '"five"', "int")
    assert refusing.stored("Invoices") == refusing.dead("Invoices") == []


def test_a_mapping_without_a_value_is_refused_with_its_expression(refusing: Sender) -> None:
    reply = refusing.signed("Invoice", {"number": "R-1"})

    assert (reply.status, reply.code) == (422, "MAPPING_FAILED")
    assert reply.json["error"]["details"]["expression"] == "payload.cents"


def test_what_was_refused_is_taken_once_it_is_mended(refusing: Sender) -> None:
    refusing.signed("Keyed", {"id": 1, "number": "R-1", "cents": "five"})

    assert refusing.signed("Keyed", {"id": 1, "number": "R-1", "cents": 5}).status == 202


def test_a_message_of_another_type_is_kept_as_a_dead_letter(keeping: Sender) -> None:
    reply = keeping.signed("Invoice", {"number": "R-1", "cents": "five"})

    assert reply.status == 202
    assert (reply.json["queued"], reply.json["quarantined"]) == (False, True)
    assert keeping.stored("Invoices") == []
    [letter] = keeping.dead("Odd")
    assert letter["id"] == reply.json["message_id"]
    assert (letter["reason"], letter["attempts"], letter["sourceQueue"]) == ("invalid", 0, "Invoices")
    assert "field 'cents' does not fit: expected int" in letter["error"]
    assert letter["payload"] == {"number": "R-1", "cents": "five"}


def test_a_repeat_of_what_was_kept_is_kept_once(keeping: Sender) -> None:
    first = keeping.signed("Invoice", {"number": "R-1", "cents": "five"})
    again = keeping.signed("Invoice", {"number": "R-1", "cents": "five"})

    assert again.body == first.body
    assert len(keeping.dead("Odd")) == 1


def test_what_nothing_can_be_made_of_is_kept_whole(keeping: Sender) -> None:
    keeping.signed("Invoice", {"number": "R-1"}, X_Kind="odd")

    [letter] = keeping.dead("Odd")
    assert letter["payload"]["payload"] == {"number": "R-1"}
    assert letter["payload"]["headers"] == {"x-kind": "odd"}
    assert "payload.cents" in letter["error"]


def test_what_has_no_key_is_kept_once_too(keeping: Sender) -> None:
    first = keeping.signed("Keyed", {"number": "R-1", "cents": 5})
    again = keeping.signed("Keyed", {"number": "R-1", "cents": 5})

    assert first.json["quarantined"]
    assert again.body == first.body
    [letter] = keeping.dead("Odd")
    assert letter["payload"] == {"number": "R-1", "cents": 5}


def test_a_partition_that_cannot_be_one_is_kept_too(keeping: Sender) -> None:
    assert keeping.signed("Invoice", {"number": "R" * 300, "cents": 5}).json["quarantined"]
    assert keeping.signed("Invoice", {"number": "", "cents": 5}).json["quarantined"]

    assert len(keeping.dead("Odd")) == 2


def test_what_is_not_json_is_not_kept(keeping: Sender) -> None:
    assert keeping.signed("Invoice", b"{").status == 400
    assert keeping.dead("Odd") == []


def test_what_was_kept_can_be_replayed(keeping: Sender) -> None:
    keeping.signed("Invoice", {"number": "R-1", "cents": "five"})

    assert keeping.api.post("/api/v1/dlq/replay", {"queue": "Odd"}).json["count"] == 1
    assert [message["payload"] for message in keeping.api.pop("Invoices")] == [{"number": "R-1", "cents": "five"}]
