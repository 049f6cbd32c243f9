"""Webhooks and typed pushes whose expressions take long: other requests do not wait for them, and they end."""

from __future__ import annotations

import pytest

from tests.support.evaluations import counted
from tests.webhooks.driver import SIGNED, Sender

SHORT, LONG = [1, 2, 3], list(range(1, 3_001))

MAPPED = f"""
app Mapped {{
  queue Sizes {{
    message_type {{ size: int }}
  }}
  webhook Size {{
    queue: Sizes
    {SIGNED}
    message {{ size: size(payload.list.filter(x, x > 0)) }}
  }}
  webhook Keyed {{
    queue: Sizes
    {SIGNED}
    idempotency {{ key: string(size(payload.list.filter(x, x > 0))) }}
    message {{ size: 1 }}
  }}
  webhook Run {{
    command: Sum.Add {{ list: payload.list }}
    {SIGNED}
  }}
  entity Sum {{
    id: "all"
    state {{ size: int = 0 }}
    command Add {{
      input {{ list: list<int> }}
      guard: input.list.all(x, x > 0)
      emits Added {{ size: size(input.list) }}
    }}
    event Added {{ size: state.size + event.size }}
  }}
}}
"""


@pytest.mark.parametrize("hook", ["Size", "Keyed", "Run"])
def test_what_a_webhook_takes_long_for_is_evaluated_off_the_loop(
    sender: Sender, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    sender.apply(MAPPED)
    thread = counted(monkeypatch)
    assert sender.signed(hook, {"list": SHORT}).status in (200, 202)
    assert thread.given == 0
    assert sender.signed(hook, {"list": LONG}).status in (200, 202)
    assert thread.given == 1


def test_what_a_typed_push_takes_long_for_is_evaluated_off_the_loop(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender.apply("""
    app Typed {
      queue Lists {
        message_type { list: list<int> }
        key: string(size(list.filter(x, x > 0)))
      }
    }
    """)
    thread = counted(monkeypatch)
    assert sender.api.push("Lists", {"list": SHORT}).status == 201
    assert thread.given == 0
    assert sender.api.push("Lists", {"list": LONG}).status == 201
    assert thread.given == 1
    assert {message["partition"] for message in sender.api.pop("Lists", 10)} == {"3", "3000"}


def test_patterns_in_a_message_end_with_the_budget(sender: Sender) -> None:
    """B6: 1.2 KB of such patterns held up the whole server for 5.6 seconds."""
    sender.apply(f"""
    app Patterns {{
      queue Found {{
        message_type {{ found: bool }}
      }}
      webhook Find {{
        queue: Found
        {SIGNED}
        message {{ found: payload.patterns.exists(p, payload.text.matches(p)) }}
      }}
    }}
    """)
    small = {"text": "a", "patterns": ["^b", "^[a-c]+$"]}
    assert sender.signed("Find", small).status == 202
    hungry = {"text": "é", "patterns": [rf"(?i)\pL{{2}}{index}" for index in range(80)]}
    refused = sender.signed("Find", hungry)
    assert refused.status == 422
    assert "more than 100000 steps" in refused.json["error"]["message"]


def test_a_large_body_is_verified_and_told_from_its_repeat(sender: Sender) -> None:
    sender.apply(f"app Large {{ queue Bodies {{}}  webhook Body {{ queue: Bodies\n {SIGNED} }} }}")
    large = {"text": "a" * 400_000}
    first = sender.signed("Body", large)
    assert first.status == 202
    assert sender.signed("Body", large).json == first.json
    assert sender.signed("Body", large, secret="another secret, as long").status == 401
    assert len(sender.stored("Bodies")) == 1
