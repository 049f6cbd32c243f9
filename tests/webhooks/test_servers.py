"""Webhooks where not everything is there: several servers on one store, a store that is away, secrets that are missing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skep.apps.applying import apply
from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.server.compose import open_server
from skep.spec import load
from skep.testing.server import running_server
from skep.webhooks.hooks import Hooks
from tests.http.driver import Reply
from tests.support.postgres import running_postgres
from tests.webhooks.driver import SECRETS, SIGNED, Sender

SPEC = f"""
app Alerts {{
  queue Ingress {{}}
  webhook Alert {{
    queue: Ingress
    {SIGNED}
    idempotency {{ key: payload.id }}
  }}
  webhook Open {{
    queue: Ingress
    verify: none
  }}
}}
"""


def test_a_repeat_is_told_whichever_server_it_comes_to(empty_tables_dsn: str) -> None:
    with running_server(empty_tables_dsn, environment=SECRETS) as one:
        sender = Sender(one, ManualClock())
        sender.apply(SPEC)
        with running_server(empty_tables_dsn, environment=SECRETS) as other:
            senders = [sender, Sender(other, ManualClock())]

            def post(number: int) -> Reply:
                mine = Sender(senders[number % 2].server, ManualClock())
                try:
                    return mine.signed("Alert", {"id": number // 8})
                finally:
                    mine.close()

            with ThreadPoolExecutor(8) as pool:
                replies = list(pool.map(post, range(80)))
            for each in senders:
                assert len({reply.body for reply in replies}) == 10
                each_again = each.signed("Alert", {"id": 3})
                assert each_again.body in {reply.body for reply in replies}
                each.close()
            stored = Sender(other, ManualClock()).stored("Ingress")

    assert {reply.status for reply in replies} == {202}
    assert sorted(message["payload"]["id"] for message in stored) == list(range(10))


def test_a_store_that_is_away_sends_webhooks_away_and_takes_them_when_it_is_back() -> None:
    with (
        running_postgres(shared_buffers="32MB") as mortal,
        running_server(mortal.create_database(), environment=SECRETS) as server,
    ):
        sender = Sender(server, ManualClock())
        sender.apply(SPEC)
        first = sender.signed("Alert", {"id": 1})
        mortal.stop()
        away = sender.signed("Alert", {"id": 2})
        mortal.start()
        again = [sender.signed("Alert", {"id": number}) for number in (1, 2, 2)]
        stored = sender.stored("Ingress")
        sender.close()

    assert (away.status, away.code) == (503, "STORE_UNAVAILABLE")
    assert int(away.headers["retry-after"]) >= 1
    assert [reply.status for reply in again] == [202, 202, 202]
    assert again[0].body == first.body
    assert again[1].body == again[2].body
    assert [message["payload"]["id"] for message in stored] == [1, 2]


async def test_a_webhook_whose_secret_is_missing_is_unavailable_and_takes_nothing_unverified(tmp_path: Path) -> None:
    store = str(tmp_path / "skep.db")
    async with open_server(store, environment=SECRETS) as opened:
        await apply(opened.engine, opened.catalogue, load(SPEC, "alerts.skep"), dry_run=False)
    for environment in ({}, {"SECRET": "one of two secrets"}):
        async with open_server(store, environment=environment, require_secrets=False) as opened:
            hooks = Hooks(opened.catalogue)
            with pytest.raises(SkepError) as unavailable:
                hooks.find("Alert")
            assert unavailable.value.code is Code.WEBHOOK_UNAVAILABLE
            assert unavailable.value.retryable
            assert hooks.find("Open").verify is None


async def test_webhooks_follow_their_apps(tmp_path: Path) -> None:
    async with open_server(str(tmp_path / "skep.db"), environment=SECRETS) as opened:
        hooks = Hooks(opened.catalogue)
        with pytest.raises(SkepError, match="there is no webhook 'Alert'"):
            hooks.find("Alert")
        await apply(opened.engine, opened.catalogue, load(SPEC, "alerts.skep"), dry_run=False)
        known = hooks.find("Alert")
        other = load("app Other {\n queue Q {}\n webhook W {\n queue: Q\n verify: none\n }\n}", "other.skep")
        await apply(opened.engine, opened.catalogue, other, dry_run=False)
        assert hooks.find("Alert") is known  # an app that did not change is not compiled again
        await apply(opened.engine, opened.catalogue, load(SPEC.replace("payload.id", "payload.key"), ""), dry_run=False)
        assert hooks.find("Alert") is not known
        assert hooks.find("W").name == "W"


def test_a_server_that_was_restarted_knows_its_webhooks_and_their_keys(tmp_path: Path) -> None:
    store, clock = str(tmp_path / "skep.db"), ManualClock()
    answers, depths = [], []
    for start in range(2):
        with running_server(store, clock=clock, environment=SECRETS) as server:
            sender = Sender(server, clock)
            if not start:
                sender.apply(SPEC)
            answers.append(sender.signed("Alert", {"id": 1}).body)
            depths.append(sender.api.get("/admin/queues").json["queues"][0]["depth"])
            sender.close()

    assert answers[0] == answers[1]
    assert depths == [1, 1]


def test_commands_that_come_to_different_servers_all_count_once(empty_tables_dsn: str) -> None:
    spec = f"""
        app Doors {{
          entity Door {{
            id: input.door
            state {{ rings: int = 0 }}
            command Ring {{
              input {{ door: string }}
              emits Rung {{}}
            }}
            event Rung {{ rings: state.rings + 1 }}
          }}
          webhook Bell {{
            command: Door.Ring {{ door: payload.door }}
            {SIGNED}
            idempotency {{ key: payload.id }}
          }}
        }}
    """
    with running_server(empty_tables_dsn, environment=SECRETS) as one:
        first = Sender(one, ManualClock())
        first.apply(spec)
        with running_server(empty_tables_dsn, environment=SECRETS) as other:

            def ring(number: int) -> list[int]:
                mine = Sender(other if number % 2 else one, ManualClock())
                try:
                    return [mine.signed("Bell", {"door": "front", "id": f"{number // 4}-{n}"}).status for n in range(5)]
                finally:
                    mine.close()

            with ThreadPoolExecutor(4) as pool:
                statuses = [status for found in pool.map(ring, range(32)) for status in found]
            door = first.entity("Door", "front")
        first.close()

    assert statuses == [200] * 160
    assert door["state"] == {"rings": 40}
    assert door["version"] == 40
