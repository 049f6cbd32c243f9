"""Wording: pages speak as operators do. What was said in odd words is not said again anywhere."""

from __future__ import annotations

from importlib.resources import files

import pytest

from skep.dashboard.notices import notice_of
from tests.dashboard.visitor import Visitor
from tests.http.driver import Api

ODD = (
    "to look at", "Nothing urgent", "All is well", "dying", "executed as they come", "ever put off", "What admins did",
    "attempts anew", "Not reached", "as it was", "asks who you are", "Show a key", "what they held", "Forget ", "forgotten",
    "another like it", "most to do", "to do", "given up", "taken away", "for good", "went back", "go back to where", "no error told",
    "died of", "is made by", "looked into", "starts anew", "done with", "comes back by itself", "tell of themselves", "Nobody",
    "whoever",
)  # fmt: skip
SAID_IN = ("templates", "static", "views")


def test_no_page_says_it_in_the_old_words() -> None:
    folder = files("skep.dashboard")
    texts = {
        f"{part}/{entry.name}": entry.read_text()
        for part in SAID_IN
        for entry in (folder / part).iterdir()
        if entry.name.endswith((".html", ".js", ".py"))
    }
    texts["notices.py"] = (folder / "notices.py").read_text()

    def spoken(name: str, text: str) -> str:
        """Without comments and docstrings, which speak to us."""
        if name.endswith(".html"):
            return text
        if name.endswith(".js"):
            return "\n".join(line.partition("// ")[0] for line in text.splitlines())
        return "\n".join(line for line in text.split('"""')[::2] for line in line.splitlines() if "#" not in line)

    found = [(name, odd) for name, text in texts.items() for odd in ODD if odd in spoken(name, text)]
    assert found == []


@pytest.fixture
def busy(api: Api) -> Api:
    """Orders that fail, wait and lie about."""
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"max_attempts": 1, "max_depth": 10}})
    api.post("/api/v1/configure", {"queue": "emails", "settings": {"paused": True}})
    api.push("orders", *range(10))
    api.ack(api.pop("orders", 1)[0], "failed", error="no such customer")
    api.pop("orders", 1)
    return api


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/", "1 alert "),
        ("/", "Queues with the largest backlog"),
        ("/operations", "Accepting all requests"),
        ("/operations", "No deferred operations"),
        ("/operations", "Audit log"),
        ("/operations/audit", "Audit log"),
        ("/dead-letters/orders.dead/confirm?do=replay", "with a fresh attempt count"),
        ("/dead-letters/orders.dead/letters/1", "with a fresh attempt count"),
        ("/messages?q=queue:orders&seq=1", "Push a copy"),
    ],
)
def test_a_page_says_it_in_plain_words(visitor: Visitor, path: str, said: str) -> None:
    assert said in visitor.open(path).text


def test_a_group_is_deleted_by_that_word(visitor: Visitor, api: Api) -> None:
    api.push("orders", 1)
    api.pop("orders", 1, "&consumerGroup=billing")

    assert "Delete group" in visitor.open("/queues/orders/groups/billing/seek").text


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1", "1 lease released; its messages will be redelivered."),
        ("2", "2 leases released; their messages will be redelivered."),
    ],
)
def test_released_leases_are_spoken_of(number: str, said: str) -> None:
    assert notice_of({"notice": "released", "number": number}) == said


def test_a_stale_backlog_has_that_name(visitor: Visitor) -> None:
    assert "Backlog stale" in visitor.open("/queues").text
