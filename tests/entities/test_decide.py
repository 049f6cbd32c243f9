"""What a command does to an entity: guard, events, fold, and why it is refused."""

from __future__ import annotations

import pytest

from skep.clock import Instant
from skep.entities import Emitted, Snapshot, accept, compile_entities, decide, encoded, fold, snapshot
from skep.errors import Code, SkepError
from skep.spec import load

NOW = Instant(1_767_225_600_000_000)

ACCOUNTS = """
app Accounts {
  entity Account {
    id: input.account
    state {
      owner: string = ""
      cents: int = 0
      frozen: bool = false
      last_change: time?
      note: string?
    }
    command Deposit {
      input {
        account: string
        cents: int
        owner: string?
        note: json?
        reason: string = "cash"
      }
      guard: !state.frozen && input.cents > 0
      emits Opened when (state.last_change == null && input.owner != null) {
        owner: input.owner
      }
      emits Deposited {
        cents: input.cents
        at: now
        reason: input.reason
      }
      emits Noted when (input.note != null) {
        note: input.note
      }
      emits Seen {
        before: state.cents
      }
    }
    command Divide {
      input {
        account: string
        by: int
      }
      emits Deposited {
        cents: state.cents / input.by - state.cents
        at: now
        reason: "division"
      }
    }
    event Opened {
      owner: event.owner
    }
    event Deposited {
      cents: state.cents + event.cents
      last_change: event.at
    }
    event Noted {
      note: event.note
    }
  }
}
"""
ACCOUNT = compile_entities(load(ACCOUNTS, "accounts.skep"))["Account"]


def given(cents: int, **more: object) -> dict[str, object]:
    return {"account": "a-1", "cents": cents, **more}


def refusal(command: str, before: Snapshot | None, input_: dict[str, object]) -> SkepError:
    with pytest.raises(SkepError) as caught:
        decide(accept(ACCOUNT, command, input_), before, NOW)
    return caught.value


def test_a_command_emits_its_events_and_folds_them_into_the_state() -> None:
    decision = decide(accept(ACCOUNT, "Deposit", given(500, owner="Ann")), None, NOW)
    assert decision.id == "a-1"
    assert decision.before.version == 0
    assert decision.events == [
        Emitted("Opened", {"owner": "Ann"}),
        Emitted("Deposited", {"cents": 500, "at": "2026-01-01T00:00:00Z", "reason": "cash"}),
        Emitted("Seen", {"before": 0}),
    ]
    assert decision.after == Snapshot(
        3, {"owner": "Ann", "cents": 500, "frozen": False, "last_change": "2026-01-01T00:00:00Z", "note": None}
    )
    assert decision.answer == {
        "entity": "Account", "id": "a-1", "version": 3,
        "events": [{"name": event.name, "data": event.data} for event in decision.events],
    }  # fmt: skip


def test_a_decision_leaves_what_it_was_computed_from_as_it_was() -> None:
    first = decide(accept(ACCOUNT, "Deposit", given(500)), None, NOW)
    before = encoded(first.after.state)
    second = decide(accept(ACCOUNT, "Deposit", given(1)), first.after, NOW)
    assert encoded(first.after.state) == before
    assert (second.after.version, second.after.state["cents"]) == (4, 501)
    assert ACCOUNT.initial["cents"] == 0


def test_a_guard_that_does_not_hold_says_itself_the_input_and_the_state() -> None:
    error = refusal("Deposit", None, given(-5))
    assert error.code is Code.GUARD_REJECTED
    assert error.details["expression"] == "!state.frozen && input.cents > 0"
    assert "-5" in str(error.details["input"])
    assert "frozen" in error.message
    assert "'a-1'" in error.message


@pytest.mark.parametrize(
    ("input_", "field", "value"),
    [
        ({"account": "a-1", "cents": "12"}, "cents", '"12"'),
        ({"account": "a-1"}, "cents", None),
        ({"account": "a-1", "cents": 1, "colour": "red"}, "colour", '"red"'),
    ],
)
def test_an_input_that_does_not_fit_is_named_by_field_and_value(
    input_: dict[str, object], field: str, value: str | None
) -> None:
    error = refusal("Deposit", None, input_)
    assert (error.code, error.details["field"], error.details["value"]) == (Code.MAPPING_FAILED, field, value)
    assert "Account.Deposit" in error.message


def test_an_expression_without_a_value_is_named() -> None:
    error = refusal("Divide", None, {"account": "a-1", "by": 0})
    assert error.code is Code.MAPPING_FAILED
    assert error.details["expression"] == "state.cents / input.by - state.cents"
    assert error.details["field"] == "cents"


def test_an_event_that_would_spoil_the_state_is_refused_before_it_is_kept() -> None:
    error = refusal("Deposit", None, given(1, note={"not": "a string"}))
    assert error.code is Code.MAPPING_FAILED
    assert (error.details["field"], error.details["expression"]) == ("note", "event.note")
    assert "not" in str(error.details["value"])


@pytest.mark.parametrize("id_", ["", "x" * 256, "two\nlines"])
def test_an_id_that_can_name_nothing_is_refused(id_: str) -> None:
    error = refusal("Deposit", None, {"account": id_, "cents": 1})
    assert (error.code, error.details["expression"]) == (Code.MAPPING_FAILED, "input.account")


def test_a_command_that_is_not_there_is_refused() -> None:
    assert refusal("Withdraw", None, given(1)).code is Code.MAPPING_FAILED


def test_a_stored_state_gets_the_fields_that_came_later() -> None:
    stored = snapshot(ACCOUNT, 7, b'{"cents": 3, "colour": "red"}')
    assert stored.version == 7
    assert stored.state == {
        "owner": "", "cents": 3, "frozen": False, "last_change": None, "note": None, "colour": "red"
    }  # fmt: skip


def test_an_event_that_is_not_declared_is_kept_and_changes_nothing() -> None:
    assert fold(ACCOUNT, [("Seen", {"before": 1}), ("Unknown", {})]) == ACCOUNT.initial


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(SkepError) as caught:
        encoded({"text": "\ud800"})
    assert caught.value.code is Code.MAPPING_FAILED
