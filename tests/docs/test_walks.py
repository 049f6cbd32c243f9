"""The walks of the verbs in docs/architecture.md are those that calls go: traced in a running server, on both stores."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.testing.server import running_server
from tests.docs.test_architecture import PAGE, ROOT
from tests.support.walks import Function, Walk, traced
from tests.webhooks.driver import SECRETS, SIGNED, Sender

ROW = re.compile(r"^\| `([\w.]+)` \| `(src/skep/[\w/]+\.py)` \|", re.MULTILINE)
MOST_FUNCTIONS = {"Push": 16, "Pop": 15, "Settle": 12, "Webhook": 20}
MOST_FILES = 10
SPEC = f"""
app walked {{
  queue orders {{}}
  webhook orders {{
    queue: orders
    {SIGNED}
  }}
}}
"""


def walk_of(verb: str, store: str) -> list[Function]:
    """What the page says: the functions that all share, then those of a store."""
    section = PAGE.partition(f"\n### {verb}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    shared, _, of_store = section.partition("\nOn ")
    theirs = dict(part.partition(":")[::2] for part in f"{of_store}".split("\nOn ")) if of_store else {}
    text = shared + theirs.get(store, "")
    return [Function(file, name) for name, file in ROW.findall(text)]


def after_engine_push(store: str) -> list[Function]:
    whole = walk_of("Push", store)
    return whole[[one.name for one in whole].index("Engine.push") + 1 :]


def held(walk: Walk, functions: list[Function]) -> list[str]:
    """The steps of a walk that nobody took: one calls the next, or the event loop does."""
    return [
        f"{before.name} -> {after.name}"
        for before, after in pairwise(functions)
        if (before, after) not in walk.calls and (None, after) not in walk.calls
    ]


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def store(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def sender(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Sender]:
    clock = ManualClock()
    place = str(tmp_path / "skep.db") if store == "SQLite" else request.getfixturevalue("empty_tables_dsn")
    with running_server(place, clock=clock, environment=SECRETS) as server:
        sender = Sender(server, clock)
        sender.api.push("orders", 1)
        sender.api.ack(sender.api.pop("orders")[0])
        yield sender
        sender.close()


def test_a_push_a_pop_and_an_ack_walk_as_the_page_says(sender: Sender, store: str) -> None:
    api = sender.api
    with traced(sender.server) as pushing:
        api.push("orders", 2)
    with traced(sender.server) as popping:
        [message] = api.pop("orders")
    with traced(sender.server) as settling:
        api.ack(message)

    for verb, walk in (("Push", pushing), ("Pop", popping), ("Settle", settling)):
        functions = walk_of(verb, store)
        assert len(functions) > 8
        assert held(walk, functions) == [], verb
        assert len(functions) <= MOST_FUNCTIONS[verb]
        assert len({one.file for one in functions}) <= MOST_FILES


def test_a_webhook_walks_as_the_page_says(sender: Sender, store: str) -> None:
    sender.apply(SPEC)

    with traced(sender.server) as walk:
        assert sender.signed("orders", {"id": "o-1"}).status == 202

    functions = [*walk_of("Webhook", store), *after_engine_push(store)]
    assert functions[6].name == "Engine.push"
    assert held(walk, functions) == []
    assert len(functions) <= MOST_FUNCTIONS["Webhook"]


def test_every_function_that_a_walk_names_is_there() -> None:
    named = ROW.findall(PAGE)
    assert len(named) > 40
    assert [one for one in named if one[0] not in functions_of(ROOT / one[1])] == []


def functions_of(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{one.name}"
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found
