"""Specs and entities by the command line, with a server. Apps are the server's, so each test has names of its own."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import skep
from skep.errors import Code, SkepError
from tests.cli.command import Command

NUMBERS = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A name for an app and its queue that no other test has."""
    return f"Cli{next(NUMBERS)}"


def write(tmp_path: Path, text: str) -> str:
    file = tmp_path / "app.skep"
    file.write_text(text)
    return str(file)


def spec(name: str, more: str = "") -> str:
    return f"app {name} {{ queue {name} {{ message_type {{ n: int }} {more} }} }}"


@pytest.fixture
def default(command: Command) -> Command:
    """The command as the tenant whose queues apps declare."""
    return Command(command.url, "default")


def test_a_spec_is_planned_and_applied_and_holds(default: Command, tmp_path: Path, name: str) -> None:
    file = write(tmp_path, spec(name))
    planned = default("spec", "plan", file, "-o", "table")
    assert (planned.code, planned.out) == (0, f"+ create {name}\n")
    assert default("spec", "apply", file, "--dry-run").json()["revision"] is None
    assert name not in {one["app"] for one in default("spec", "list").json()}

    applied = default("spec", "apply", file).json()
    assert applied["revision"] is not None
    assert name in {one["app"] for one in default("spec", "list").json()}
    refused = default("push", name, '{"n": "1"}')
    assert refused.code == 1
    assert refused.err.startswith("skep: MESSAGE_INVALID: Message 0: field 'n' does not fit: expected int")
    assert default("spec", "plan", file, "-o", "table").out == "nothing to change\n"


@pytest.mark.slow
def test_what_could_lose_something_is_shown_and_asked_for(default: Command, tmp_path: Path, name: str) -> None:
    default("spec", "apply", "-", stdin=spec(name))
    file = write(tmp_path, spec(name, ", retention { max_depth: 5 }"))
    refused = default("spec", "apply", file)
    assert refused.code == 1
    assert "max_depth: 0 → 5  ! pushes are refused while there are more messages than this" in refused.err
    assert "--yes" in refused.err
    declined = default.on_terminal("spec", "apply", file, typed="n\n")
    assert declined.code == 1
    agreed = default.on_terminal("spec", "apply", file, typed="y\n")
    assert agreed.code == 0, agreed.out
    assert f"applied '{name}' as revision" in agreed.out
    with skep.Client(default.url) as client:
        assert client.stats(name).settings.max_depth == 5


def test_an_app_is_forgotten_when_that_is_agreed_to(default: Command, name: str) -> None:
    default("spec", "apply", "-", stdin=spec(name))
    assert "its queues stay" in default("spec", "remove", name).err
    assert default("spec", "remove", name, "--dry-run").json()["dryRun"] is True
    assert default("spec", "remove", name, "--yes").json()["dryRun"] is False
    assert default("spec", "remove", name, "--yes").code == 4
    assert default("push", name, '{"n": "1"}').code == 0


def test_what_the_server_finds_wrong_is_told_line_by_line(default: Command, name: str) -> None:
    signed = f'app {name} {{ queue {name} {{}}, webhook {name} {{ queue: {name}, verify_github {{ secret_env: "NOPE_1" }} }} }}'
    for verb in ("plan", "apply"):
        refused = default("spec", verb, "-", stdin=signed)
        assert (refused.code, refused.out) == (1, "")
        assert "the environment has neither NOPE_1 nor NOPE_1_FILE" in refused.err
        assert "expected a secret in the environment that the server is started with" in refused.err
    wrong = default("spec", "apply", "-", stdin=f"app {name} {{ queue {name} {{ key: nope }} }}")
    assert (wrong.code, "<stdin>:1:" in wrong.err) == (1, True)


@pytest.mark.slow
def test_entities_are_seen_with_their_events(command: Command, client: skep.Client) -> None:
    with client.transaction() as tx:
        tx.effect("Order", "1", version=0, events=[("Placed", {"n": 1}), ("Paid", {})], state={"paid": True})
        tx.receipt("command", "m-1", answer={"ok": True}, window_seconds=60)
    with pytest.raises(SkepError) as late, client.transaction() as tx:
        tx.effect("Order", "1", version=0, events=[("Placed", {})], state={})
    assert late.value.code is Code.ENTITY_CHANGED
    assert command("entity", "types").json() == ["Order"]
    assert [one["id"] for one in command("entity", "list", "Order").json()] == ["1"]
    assert command("entity", "show", "Order", "1").json()["state"] == {"paid": True}
    assert [one["name"] for one in command("entity", "events", "Order", "1", "-o", "ndjson").lines()] == [
        "Placed",
        "Paid",
    ]
    assert "Paid" in command.on_terminal("entity", "events", "Order", "1").out
    assert '{"paid":true}' in command.on_terminal("entity", "show", "Order", "1").out
    assert command("entity", "show", "Order", "2").code == 4
