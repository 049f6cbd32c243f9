"""What is under way when a key ends: long polls, streams, other servers."""

from __future__ import annotations

import threading

from skep.clock import Instant, ManualClock, seconds
from skep.config import AccessSettings
from skep.model.key import Verb
from skep.testing.server import running_server
from tests.access.driver import Caller, Door
from tests.http.driver import Reply
from tests.support.waiting import until

WAIT_SECONDS = 20


class Waiting:
    """A request that waits, in a thread of its own."""

    def __init__(self, door: Door, caller: Caller, path: str) -> None:
        self.replies: list[Reply] = []
        parked = door.server.engine.parked_polls
        self._thread = threading.Thread(target=lambda: self.replies.append(caller.get(path)))
        self._thread.start()
        until(lambda: door.server.engine.parked_polls > parked)

    def reply(self) -> Reply:
        self._thread.join(WAIT_SECONDS)
        [reply] = self.replies
        return reply


def test_a_long_poll_ends_with_its_key_and_takes_nothing(door: Door) -> None:
    minted = door.key(Verb.POP, Verb.READ)
    door.caller(Verb.PUSH).push("orders", 0)
    door.caller(Verb.POP).pop("orders", "&autoAck=true")
    polls = [
        Waiting(door, door.with_token(minted.text), path)
        for path in (
            "/api/v1/pop/queue/orders?wait=true&timeout=60",
            "/api/v1/pop/queue/orders?wait=true&timeout=60&autoAck=true",
            "/api/v1/log/orders/bounds?after=1&wait=true&timeout=60",
        )
    ]

    door.revoke(minted)

    assert [poll.reply().status for poll in polls] == [401, 401, 401]
    door.caller(Verb.PUSH).push("orders", "kept")
    [message] = door.caller(Verb.POP).pop("orders").json["messages"]
    assert (message["payload"], message["attempt"]) == ("kept", 1)


def test_a_key_expires_by_the_servers_clock_and_with_it_its_polls() -> None:
    clock = ManualClock()
    with running_server(clock=clock, access=AccessSettings(required=True)) as server:
        door = Door(server, "default")
        door.caller(Verb.PUSH).push("orders", 0)
        door.caller(Verb.POP).pop("orders", "&autoAck=true")
        minted = door.key(Verb.POP, expires_at=Instant(clock.now() + seconds(60)))
        caller = door.with_token(minted.text)
        poll = Waiting(door, caller, "/api/v1/pop/queue/orders?wait=true&timeout=300")

        clock.advance(60)

        assert poll.reply().status == 401
        again = caller.pop("orders")
        assert (again.status, again.json["error"]["message"]) == (401, "The key has expired.")
        door.close()


def test_a_key_revoked_on_another_server_counts_no_longer_here_within_a_second(
    empty_tables_dsn: str,
) -> None:
    access = AccessSettings(required=True)
    with (
        running_server(empty_tables_dsn, access=access) as one,
        running_server(empty_tables_dsn, access=access) as two,
    ):
        here, there = Door(one, "default"), Door(two, "default")
        minted = there.key(Verb.PUSH, Verb.POP)
        caller = here.with_token(minted.text)
        assert caller.push("orders", 1).status == 201  # at once, though it was made elsewhere
        poll = Waiting(
            here,
            here.with_token(minted.text),
            "/api/v1/pop/queue/orders?wait=true&timeout=60&consumerGroup=g&subscriptionMode=new",
        )

        there.revoke(minted)

        assert poll.reply().status == 401
        assert caller.push("orders", 1).status == 401
        here.close()
        there.close()


def test_a_rate_limit_says_when_to_come_again_and_others_are_not_held_up() -> None:
    clock = ManualClock()
    with running_server(clock=clock, access=AccessSettings(required=True, requests_per_second=100.0)) as server:
        door = Door(server, "default")
        slow = door.with_token(door.key(Verb.PUSH, requests_per_second=0.5).text)
        other = door.caller(Verb.PUSH)

        replies = [slow.push("orders", 1) for _ in range(3)]
        assert [reply.status for reply in replies] == [201, 429, 429]
        assert (replies[1].code, replies[1].headers["retry-after"]) == ("TOO_MANY_REQUESTS", "2")
        assert other.push("orders", 1).status == 201
        clock.advance(2)
        assert slow.push("orders", 1).status == 201
        assert [other.push("orders", 1).status for _ in range(300)].count(429) > 0
        door.close()
