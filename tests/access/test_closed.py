"""A store that ever asked for keys goes on asking, until somebody says otherwise; one that asks nobody says so."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from importlib.resources import files
from pathlib import Path

import apsw
import pytest

from skep.access.administering import KeyDesk
from skep.clock import Instant, ManualClock, seconds
from skep.config import AccessSettings
from skep.engine import Engine
from skep.model.key import EVERY, Grant, Verb
from skep.server.compose import OPEN_ACCESS, open_engine, open_gate
from skep.store.migrate import load_migrations
from tests.support.process import run_skep
from tests.support.serving import serving
from tests.support.wire import Wire

ADMIN = Grant((Verb.ADMIN,), (EVERY,), (EVERY,))
DAY = 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "skep.db")
    dsn: str = request.getfixturevalue("empty_tables_dsn")
    return dsn


async def is_guarded(engine: Engine, clock: ManualClock, settings: AccessSettings | None = None) -> bool:
    """Whether a server that starts now, on loopback, asks who comes."""
    return await open_gate(engine, clock, settings or AccessSettings(), is_exposed=False) is not None


async def with_a_key_that_was_forgotten(engine: Engine, clock: ManualClock) -> None:
    """Make a key that expires, and let so much time pass that nothing is left of it."""
    until = Instant(engine.now() + seconds(DAY))
    await KeyDesk(engine.access, engine.now).make(None, "short", [ADMIN], created_by="me", expires_at=until)
    clock.advance(40 * DAY)
    await engine._store.sweep(engine.now(), 1_000)
    assert await engine.access.all_keys() == []


async def test_a_store_whose_last_key_expired_and_was_forgotten_stays_closed_across_restarts(
    url: str, clock: ManualClock
) -> None:
    async with open_engine(url, clock=clock) as engine:
        assert not await is_guarded(engine, clock)
        await with_a_key_that_was_forgotten(engine, clock)
        assert await is_guarded(engine, clock)
    for _ in range(2):
        async with open_engine(url, clock=clock) as engine:
            assert await is_guarded(engine, clock)


async def test_a_closed_store_is_opened_by_a_word_and_closed_again_by_a_key(url: str, clock: ManualClock) -> None:
    async with open_engine(url, clock=clock) as engine:
        await with_a_key_that_was_forgotten(engine, clock)
        assert not await is_guarded(engine, clock, AccessSettings(required=False))
        assert await is_guarded(engine, clock)

        await engine.access.set_closed(False)
        assert not await is_guarded(engine, clock)

        await KeyDesk(engine.access, engine.now).make(None, "new", [ADMIN], created_by="me")
        assert await is_guarded(engine, clock)


async def test_a_store_that_was_served_with_access_required_stays_closed_without_that_setting(
    url: str, clock: ManualClock
) -> None:
    async with open_engine(url, clock=clock) as engine:
        assert await is_guarded(engine, clock, AccessSettings(required=True))
        assert await is_guarded(engine, clock)


@pytest.mark.parametrize("action", ["skep key create", "POST /api/v1/keys"])
async def test_a_store_of_before_this_was_remembered_is_closed_when_its_audit_log_tells_of_a_key(
    tmp_path: Path, clock: ManualClock, action: str
) -> None:
    path = str(tmp_path / "skep.db")
    db = apsw.Connection(path)
    db.execute("CREATE TABLE migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT")
    for step in load_migrations(files("skep.store.sqlite").joinpath("migrations")):
        if step.name == "access_state":
            break
        db.execute(step.sql)
        db.execute("INSERT INTO migration VALUES (?, ?, ?)", (step.number, step.name, step.checksum))
    now = clock.now()
    db.execute(
        "INSERT INTO audit (at, expires_at, tenant, actor, action, queues, outcome) VALUES (?, ?, '', 'cli:ann', ?, '[]', 'done')",
        (now, now + seconds(DAY), action),
    )
    db.close()

    async with open_engine(path, clock=clock) as engine:
        assert await is_guarded(engine, clock)


# as processes


def skep(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_skep(*arguments, cwd=folder, env={**os.environ, **environ}, text=True, timeout=60)


def asks_for_a_key(folder: Path) -> bool:
    with serving(folder=folder) as server, Wire(server.listening()) as wire:
        return wire.request("GET", "/api/v1/resources/queues").reply().status == 401


@pytest.mark.parametrize("arguments", [(), ("--set", "access.required=false"), ("--host", "0.0.0.0", "--insecure")])
def test_every_start_that_asks_nobody_for_a_key_says_so(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with serving(*arguments, folder=tmp_path) as server:
        assert server.event(OPEN_ACCESS)["level"] == "warning"
    with serving(*arguments, "--log-level", "error", folder=tmp_path) as server:
        while not server.lines:
            assert server.process.poll() is None
        assert server.lines[0] == f"skep: warning: {OPEN_ACCESS}"


async def test_commands_at_the_store_are_in_the_audit_log_for_as_long_as_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "skep.toml").write_text("[access]\naudit_days = 365\n", encoding="utf-8")
    [made] = skep("key", "create", "--role", "admin", "--quiet", folder=tmp_path).stdout.split()
    assert skep("key", "revoke", made.split("_")[1], folder=tmp_path).returncode == 0
    assert skep("access", "open", "--yes", folder=tmp_path).returncode == 0

    async with open_engine(str(tmp_path / "skep-data" / "skep.db")) as engine:
        entries = await engine.access.list_audit()

    assert [entry.action for entry in entries] == ["skep access open", "skep key revoke", "skep key create"]
    assert {entry.expires_at - entry.at for entry in entries} == {seconds(365 * DAY)}


def test_the_command_opens_a_store_only_when_no_key_counts_and_no_server_has_it(tmp_path: Path) -> None:
    made = skep("key", "create", "--role", "admin", "--quiet", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    with serving(folder=tmp_path) as server:
        server.listening()
        busy = skep("access", "open", "--yes", folder=tmp_path)
    assert (busy.returncode != 0, "stop it first" in busy.stderr) == (True, True), busy.stderr
    refused = skep("access", "open", "--yes", folder=tmp_path)
    assert "Keys of the store that count: 1; revoke them first" in refused.stderr
    [key] = json.loads(skep("key", "list", folder=tmp_path).stdout)
    assert skep("key", "revoke", key["id"], folder=tmp_path).returncode == 0
    assert json.loads(skep("access", "show", folder=tmp_path).stdout) == {"closed": True, "keys": 0}
    skep("access", "open", "--dry-run", folder=tmp_path)
    assert "say --yes" in skep("access", "open", folder=tmp_path).stderr
    assert asks_for_a_key(tmp_path)

    opened = skep("access", "open", "--yes", folder=tmp_path)

    assert json.loads(opened.stdout) == {"closed": False, "keys": 0}
    assert not asks_for_a_key(tmp_path)


def test_the_audit_log_and_keys_name_the_account_and_not_what_a_variable_says(tmp_path: Path) -> None:
    forged = dict.fromkeys(("LOGNAME", "USER", "LNAME", "USERNAME"), "somebody-else")
    made = skep("key", "create", "--role", "admin", "-o", "json", folder=tmp_path, **forged)
    me = f"cli:{pwd.getpwuid(os.getuid()).pw_name}"
    assert json.loads(made.stdout)["key"]["createdBy"] == me
    db = apsw.Connection(str(tmp_path / "skep-data" / "skep.db"))
    assert db.execute("SELECT actor FROM audit").fetchall() == [(me,)]
    db.close()


def test_keys_are_made_on_a_store_that_has_encrypted_queues(tmp_path: Path) -> None:
    """It is opened with the master keys that the settings name, as the server would."""
    masters = tmp_path / "masters"
    masters.write_text(skep("encryption", "master", "first", folder=tmp_path).stdout)
    masters.chmod(0o600)
    environ = {"SKEP_ENCRYPTION_MASTER_KEYS": f"file:{masters}"}
    with serving(folder=tmp_path, environ=environ) as server:
        url = f"http://127.0.0.1:{server.listening()}"
        assert skep("queue", "create", "q", "--encryption-enabled", "--url", url, folder=tmp_path).returncode == 0
        assert skep("push", "q", "1", "--url", url, folder=tmp_path).returncode == 0
    made = skep("key", "create", "--role", "admin", folder=tmp_path, **environ)
    assert made.returncode == 0, made.stderr
