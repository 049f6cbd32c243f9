"""Histories of runs that move clocks: what a jump may change, and what not."""

from __future__ import annotations

from typing import Any

from skep.clock import Instant, seconds
from skep.ids import Id
from skep.model import Delivery, PopRequest, PopResult, QueueKey, QueueSettings, Seq, Start, StartMode, Token
from torture.check import check
from torture.history import Call, History
from torture.server_time import Jump, ServerTime

QUEUE = QueueKey("q")
SETTINGS = {QUEUE: QueueSettings(lease_seconds=1.0)}
HOUR = 3600.0


def call(verb: str, at: float, request: Any, answer: Any) -> Call:
    """A call of a tenth of a second, on this machine's time."""
    now, until = (Instant(seconds(1_000_000 + when)) for when in (at, at + 0.1))
    started, ended = (round(when * 1e9) for when in (at, at + 0.1))
    return Call("c", verb, started, ended, now, request, answer, until)


def pop(at: float, token: str, server_is_ahead: float = 0.0) -> Call:
    """A pop that leases a partition for a second, with the deadline as the server tells it."""
    deadline = Instant(seconds(1_000_000 + at + server_is_ahead + 1.0))
    delivery = Delivery(
        QUEUE, "g", "p", Seq(1), Id(b"1" * 16), None, Id(b"2" * 16), None, "text/plain", b"x", 0, Instant(0), 1,
        Token(token.encode()), deadline,
    )  # fmt: skip
    return call("pop", at, [PopRequest(QUEUE, group="g", lease_seconds=1.0)], [PopResult([delivery])])


def leases_overlap(server: ServerTime, *calls: Call) -> bool:
    history = server.steadied(History(list(calls), SETTINGS))
    return any(violation.promise == "I5" for violation in check(history))


def moved(*jumps: tuple[float, float]) -> ServerTime:
    server = ServerTime()
    server.is_moved = True
    server.jumps.extend(Jump(round(first * 1e9), round(last * 1e9)) for first, last in jumps)
    return server


def test_a_lease_may_end_early_by_a_jump_after_its_claim_only() -> None:
    claims = (pop(10.0, "one"), pop(10.5, "two"))

    assert leases_overlap(moved(), *claims)
    assert not leases_overlap(moved((10.2, 10.4)), *claims)
    assert leases_overlap(moved((9.0, 9.9)), *claims)
    assert leases_overlap(moved((10.7, 11.0)), *claims)


def test_a_clock_that_goes_back_cuts_no_lease_short() -> None:
    assert leases_overlap(moved(), pop(10.0, "one", HOUR), pop(10.5, "two"))


def test_a_lease_that_has_had_its_time_is_over_whatever_the_server_called_its_end() -> None:
    assert not leases_overlap(moved(), pop(10.0, "one", HOUR), pop(11.0, "two"))
    assert leases_overlap(ServerTime(), pop(10.0, "one", HOUR), pop(11.0, "two"))


def test_a_clock_that_is_put_right_little_by_little_is_fast_by_a_tenth() -> None:
    assert not leases_overlap(moved(), pop(10.0, "one"), pop(10.85, "two"))
    assert leases_overlap(moved(), pop(10.0, "one"), pop(10.75, "two"))


def test_clocks_that_go_ahead_are_jumps_and_those_that_go_back_are_none() -> None:
    back, ahead = ServerTime(), ServerTime()
    back.goes(-HOUR)
    ahead.goes(HOUR)

    assert (back.is_moved, len(back.jumps)) == (True, 0)
    assert (ahead.is_moved, len(ahead.jumps)) == (True, 1)


def test_a_seek_to_a_time_may_have_gone_anywhere() -> None:
    seek = call("seek", 10.0, (QUEUE, "g", Start(StartMode.TIME, 5)), None)

    [steadied] = moved().steadied(History([seek], SETTINGS)).calls

    assert steadied.request[2].value > seconds(2_000_000)
    assert ServerTime().steadied(History([seek], SETTINGS)).calls == [seek]
