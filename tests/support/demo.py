"""What the demo prints, and what must be true of it."""

from __future__ import annotations

import re


def serving(printed: str) -> int:
    """The process that serves."""
    found = re.search(r"\(pid (\d+)\)", printed)
    assert found is not None, printed
    return int(found[1])


def check_story(printed: str) -> None:
    """All accounts add up, and every check held."""
    accounts = re.findall(r"^ (\w+) +(\w+)((?: +\d+){6}) *$", printed, re.MULTILINE)
    assert [account[:2] for account in accounts] == [
        ("orders", "audit"), ("orders", "billing"), ("payments", "bank"), ("shipments", "parcels"), ("refusals", "letters"),
        ("returns", "refunds"),
    ]  # fmt: skip
    for _, _, figures in accounts:
        pushed, *parts = map(int, figures.split())
        assert pushed == sum(parts) > 0
    sums = re.search(r"(\d+) orders placed = (\d+) shipped \+ (\d+) refused", printed)
    assert sums is not None
    placed, shipped, refused = map(int, sums.groups())
    assert placed == shipped + refused
    assert shipped > 0
    assert refused > 0
    assert "checks held" in printed
    assert "FAILED" not in printed


def check_lake(printed: str) -> None:
    """The lake has what the logs have, and the pipelines say what there was."""
    assert "XTS" in printed  # what the dead letters have in common; the table may be folded
    assert re.search(r"ok +rows in the lake = messages in the logs: (\d+) messages, \1 rows", printed)
