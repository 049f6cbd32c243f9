"""A worker whose expressions take long: its leases are renewed meanwhile, since the loop is free."""

from __future__ import annotations

import pytest

from tests.support.evaluations import counted
from tests.worker.place import Place

LONG = list(range(1, 3_001))
MAPPED = """
app Mapped {
  queue Lists {
    message_type { list: list<int> }
    map_to: command Lists.Count { size: size(list.filter(x, x > 0)) }
  }
}
"""
LED_ON = """
app LedOn {
  queue Lists {
    message_type { list: list<int> }
    then: queue Sizes { size: size(list.filter(x, x > 0)) }
  }
  queue Sizes {}
}
"""
LIMITED = """
app Limited {
  queue Lists {
    message_type { list: list<int> }
    rate_limit { count: 100, per: 1s, key: string(size(list.filter(x, x > 0))) }
    then: queue Sizes { size: 1 }
  }
  queue Sizes {}
}
"""
DECIDED = """
app Decided {
  queue Lists {
    message_type { list: list<int> }
    map_to: command Sum.Add { list: list }
  }
  entity Sum {
    id: "all"
    state { size: int = 0 }
    command Add {
      input { list: list<int> }
      emits Added { size: size(input.list.filter(x, x > 0)) }
    }
    event Added { size: state.size + event.size }
  }
}
"""


@pytest.mark.parametrize("text", [MAPPED, LED_ON, LIMITED, DECIDED], ids=["mapped", "led on", "limited", "decided"])
async def test_what_takes_long_is_evaluated_off_the_loop(
    place: Place, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    app = place.app(text)
    if text is MAPPED:

        @app.command("Lists.Count")
        def count(given: dict[str, int]) -> None:
            assert given["size"] in (3, len(LONG))

    thread = counted(monkeypatch)
    place.client.push("Lists", {"list": [1, 2, 3]})
    assert await place.work(app, at_least=1) == 1
    assert thread.given == 0
    place.client.push("Lists", {"list": LONG})
    assert await place.work(app, at_least=1) == 1
    assert thread.given == 1
    if text is DECIDED:  # what was begun twice is done once
        assert bytes(place.client.entity("Sum", "all").state) == b'{"size":3003}'
