"""Sessions of people: what the browser keeps is no key, and it ends when it should, on every server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from skep.access.principal import Principal
from skep.access.rates import UNKNOWN_PER_SECOND
from skep.access.sessions import Sessions
from skep.clock import Instant, ManualClock, seconds
from skep.config import AccessSettings
from skep.errors import Code, SkepError
from skep.model.key import KEY_OWNER, SessionRecord
from skep.store.protocol.access import SESSIONS_MAX
from skep.testing.server import running_server
from tests.access.driver import Door
from tests.access.requests import ALL
from tests.access.test_gate import Desk
from tests.access.test_session import OWN, login
from tests.support.waiting import until

SETTINGS = AccessSettings(required=True, session_seconds=1_000, session_idle_seconds=100)
START = Instant(1_790_000_000_000_000)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def timed(clock: ManualClock) -> Iterator[Door]:
    """The way into a server whose clock the test holds."""
    with running_server(access=SETTINGS, clock=clock) as server:
        door = Door(server, "default")
        yield door
        door.close()


def status(door: Door, cookie: str) -> int:
    return door.with_token(None).request("GET", "/queues", None, {"Cookie": cookie}).status


def test_the_cookie_is_not_the_key_and_opens_nothing_as_one(door: Door) -> None:
    key = door.key(*ALL)
    name, _, value = door.session(key.text).partition("=")
    assert name == "skep_session"
    assert key.text not in value
    assert key.record.id not in value
    assert door.with_token(value, door.tenant).get("/api/v1/resources/queues").status == 401
    assert status(door, f"skep_session={key.text}") == 401


def test_logging_out_ends_the_session_and_no_other(door: Door) -> None:
    key = door.key(*ALL).text
    one, other = door.session(key), door.session(key)
    assert door.with_token(None).request("POST", "/logout", b"", {**OWN, "Cookie": one}).status == 303
    assert (status(door, one), status(door, other)) == (401, 200)
    assert door.with_token(key, door.tenant).get("/api/v1/resources/queues").status == 200, "the key goes on"


def test_revoking_the_key_ends_its_sessions(door: Door) -> None:
    key, other = door.key(*ALL), door.key(*ALL)
    cookies = [door.session(key.text), door.session(key.text), door.session(other.text)]
    assert [status(door, cookie) for cookie in cookies] == [200, 200, 200]
    door.revoke(key)
    assert [status(door, cookie) for cookie in cookies] == [401, 401, 200]


def test_logging_in_again_ends_the_session_before(door: Door) -> None:
    key = door.key(*ALL).text
    first = door.session(key)
    second = door.session(key, Cookie=first)
    assert (status(door, first), status(door, second)) == (401, 200)


def test_a_wrong_key_makes_no_session(door: Door) -> None:
    stranger = door.with_token(None)
    wrong = "skep_" + "0" * 16 + "_" + "0" * 43
    for key in (wrong, "", "nonsense", "schl\xfcssel"):
        refused = login(stranger, key)
        assert (refused.status, "set-cookie" in refused.headers) == (401, False)
        assert b'type="password"' in refused.body


def test_a_session_ends_when_nobody_used_it_for_long(timed: Door, clock: ManualClock) -> None:
    cookie = timed.session(timed.key(*ALL).text)
    for _ in range(5):
        clock.advance(99)
        assert status(timed, cookie) == 200
    clock.advance(100)
    assert status(timed, cookie) == 401


def test_a_session_ends_when_its_time_is_over(timed: Door, clock: ManualClock) -> None:
    cookie = timed.session(timed.key(*ALL).text)
    for _ in range(19):
        clock.advance(50)
        assert status(timed, cookie) == 200
    clock.advance(50)
    assert status(timed, cookie) == 401


def test_a_session_ends_with_its_key_at_the_latest(timed: Door, clock: ManualClock) -> None:
    cookie = timed.session(timed.key(*ALL, expires_at=Instant(START + seconds(60))).text)
    clock.advance(59)
    assert status(timed, cookie) == 200
    clock.advance(1)
    assert status(timed, cookie) == 401


def test_a_known_session_costs_the_store_nothing(timed: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    cookie = timed.session(timed.key(*ALL).text)
    assert status(timed, cookie) == 200
    asked: list[str] = []
    access = timed.server.engine.access
    for name in ("get_session", "use_session", "get_key"):
        monkeypatch.setattr(access, name, lambda *_, name=name: asked.append(name))
    for _ in range(10):
        assert status(timed, cookie) == 200
    assert asked == []


def test_a_session_lives_through_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    store = str(tmp_path_factory.mktemp("sessions") / "skep.db")
    with server_of(store) as door:
        cookie = door.session(door.key(*ALL).text)
    with server_of(store) as door:
        assert status(door, cookie) == 200


@contextlib.contextmanager
def server_of(store: str) -> Iterator[Door]:
    with running_server(store, access=SETTINGS) as server:
        door = Door(server, "default")
        yield door
        door.close()


def test_servers_share_sessions_and_their_ends(empty_tables_dsn: str) -> None:
    with server_of(empty_tables_dsn) as here, server_of(empty_tables_dsn) as there:
        key = here.key(*ALL)
        cookie, other = here.session(key.text), here.session(key.text)
        assert (status(there, cookie), status(there, other)) == (200, 200)
        here.with_token(None).request("POST", "/logout", b"", {**OWN, "Cookie": cookie})
        until(lambda: status(there, cookie) == 401)
        assert status(there, other) == 200
        here.revoke(key)
        until(lambda: status(there, other) == 401)


def test_made_up_sessions_do_not_keep_the_store_busy(timed: Door) -> None:
    known = timed.session(timed.key(*ALL).text)
    assert status(timed, known) == 200
    found = [status(timed, f"skep_session={number:043}") for number in range(int(UNKNOWN_PER_SECOND) * 3)]
    assert set(found) == {401, 429}
    assert status(timed, known) == 200


def test_a_cookie_that_cannot_be_a_session_counts_as_none(timed: Door) -> None:
    stranger = timed.with_token(None)
    ended = stranger.request("GET", "/queues", None, {"Cookie": f"skep_session={'x' * 43}"})
    other = stranger.request("GET", "/queues", None, {"Cookie": "skep_session=x"})
    assert (ended.status, b"has ended" in ended.body) == (401, True)
    assert (other.status, b"has ended" in other.body) == (401, False)


def test_one_key_has_so_many_sessions_and_no_more(door: Door) -> None:
    key = door.key(*ALL)
    first = door.session(key.text)
    others = [door.session(key.text) for _ in range(SESSIONS_MAX)]
    assert (status(door, first), status(door, others[-1])) == (401, 200)


def test_a_refused_key_leaves_a_line_without_the_key(timed: Door, clock: ManualClock) -> None:
    key = timed.key(*ALL)
    wrong = key.text[:-1] + ("a" if key.text[-1] != "a" else "b")
    with capture_logs() as logged:
        assert login(timed.with_token(None), wrong, **{"X-Forwarded-For": "192.0.2.7"}).status == 401
        assert timed.with_token(wrong).get("/api/v1/resources/queues").status == 401
        for _ in range(50):
            timed.with_token(wrong).get("/api/v1/resources/queues")
        clock.advance(5)
        timed.with_token(wrong).get("/api/v1/resources/queues")

    told = [entry for entry in logged if "refused" in entry["event"]]
    assert [entry["log_level"] for entry in told] == ["warning"] * 3
    assert [(entry["peer"], entry["untold"]) for entry in told] == [
        ("192.0.2.7", 0),
        ("127.0.0.1", 0),
        ("127.0.0.1", 50),
    ]
    assert not any(wrong in str(entry) or wrong[-43:] in str(entry) for entry in logged)


def test_a_stranger_who_shows_nothing_leaves_no_line(timed: Door) -> None:
    with capture_logs() as logged:
        assert timed.with_token(None).get("/queues").status == 401
        assert timed.with_token(None).get("/api/v1/resources/queues").status == 401
    assert not any("refused" in entry["event"] for entry in logged)


async def test_a_session_that_ends_while_its_owner_is_looked_up_is_not_remembered() -> None:
    desk = Desk()
    owner = Principal(KEY_OWNER + "1", (), desk.clock)
    looks = 0

    async def owner_of(_record: SessionRecord) -> Principal:
        nonlocal looks
        looks += 1
        if looks == 1:
            await sessions.end(token)
        return owner

    sessions = Sessions(desk.access, desk.clock, SETTINGS, owner_of, lambda _: True)
    desk.access.on_change(lambda id_, _revoked: sessions.forget(id_))
    token = (await sessions.open(owner)).encode()

    with pytest.raises(SkepError) as refused:
        await sessions.admit(token)
    assert refused.value.code is Code.UNAUTHENTICATED
    assert sessions.remembered(token) is None


async def test_a_session_read_twice_counts_once_against_the_rate_of_unknown_ones() -> None:
    desk = Desk()
    owner = Principal(KEY_OWNER + "1", (), desk.clock)
    again: list[str] = []

    async def owner_of(_record: SessionRecord) -> Principal:
        if again:
            sessions.forget(again.pop())
        return owner

    sessions = Sessions(desk.access, desk.clock, SETTINGS, owner_of, lambda _: True)
    tokens = [(await sessions.open(owner)).encode() for _ in range(int(2 * UNKNOWN_PER_SECOND))]
    for token in tokens:
        again.append("another")
        assert await sessions.admit(token) is owner
    assert len(desk.keys.calls["get_session"]) == 2 * len(tokens)
