"""Applying an app: everything wrong is found before anything changes, and servers of one store agree on what is applied."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from skep.apps.applying import apply, remove
from skep.apps.catalogue import REFRESH_SECONDS
from skep.apps.differences import PartAction
from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model import QueueChanges, QueueKey, QueueSettings
from skep.server.compose import Opened, open_server
from skep.spec import Action, App, SpecError
from skep.spec.ir import Queue
from tests.apps.driver import SHOP, apply_text, message
from tests.engine.driver import until


async def queue_names(opened: Opened) -> list[str]:
    return [queue.key.name for queue in await opened.engine.list_queues()]


async def test_applying_makes_queues_with_their_settings_and_takes_the_app_in_at_once(opened: Opened) -> None:
    done = await apply_text(opened, SHOP)
    assert done.revision == opened.catalogue.revision > 0
    assert [change.queue for change in done.changes] == ["Lost", "Orders", "Free"]
    settings = (await opened.engine.get_queue(QueueKey("Orders"))).settings
    assert (settings.ordering, settings.dead_letter_queue, settings.dedup_window_seconds) == ("per_key", "Lost", 3600)
    with pytest.raises(SkepError):
        await opened.engine.push([message(b"{}")])


async def test_a_dry_run_tells_the_plan_and_changes_nothing(opened: Opened) -> None:
    planned = await apply_text(opened, SHOP, dry_run=True)
    assert (planned.revision, len(planned.changes)) == (None, 3)
    assert await queue_names(opened) == []
    assert opened.catalogue.apps == {}


async def test_applying_again_changes_nothing(opened: Opened) -> None:
    await apply_text(opened, SHOP)
    again = await apply_text(opened, SHOP)
    assert (again.changes, again.parts, again.destructive) == ([], [], False)


async def test_what_changes_is_told_with_its_danger_and_what_an_operator_set_stays(opened: Opened) -> None:
    await apply_text(opened, SHOP)
    await opened.engine.update_queue(QueueKey("Orders"), QueueChanges(lease_seconds=77))
    shorter = SHOP.replace("delivery {", "retention { max_depth: 5 }\n    delivery {").replace("  queue Free {}\n", "")
    done = await apply_text(opened, shorter.replace("cents: int", "cents: float"))
    assert done.destructive
    assert [(change.action, change.queue) for change in done.changes] == [
        (Action.UPDATE, "Orders"),
        (Action.LEAVE, "Free"),
    ]
    assert [(part.kind, part.name, part.action) for part in done.parts] == [
        ("queue", "Orders", PartAction.CHANGE),
        ("queue", "Free", PartAction.REMOVE),
    ]
    settings = (await opened.engine.get_queue(QueueKey("Orders"))).settings
    assert (settings.lease_seconds, settings.max_depth) == (77, 5)
    assert await queue_names(opened) == ["Free", "Lost", "Orders"]


async def test_parts_that_come_and_go_are_told(opened: Opened) -> None:
    hook = 'app H { queue Q {}, webhook W { queue: Q, verify: none }, schedule S { cron: "* * * * *", queue: Q } }'
    done = await apply_text(opened, hook)
    assert {(part.kind, part.action, part.danger) for part in done.parts} == {
        ("webhook", PartAction.ADD, ""),
        ("schedule", PartAction.ADD, ""),
    }
    done = await apply_text(opened, "app H { queue Q {} }")
    assert {(part.kind, part.action) for part in done.parts} == {
        ("webhook", PartAction.REMOVE),
        ("schedule", PartAction.REMOVE),
    }
    assert done.destructive


async def test_a_spec_that_is_not_sound_is_refused_with_all_its_problems(opened: Opened) -> None:
    app = App(name="A", queues={"Q": Queue(key="nope", batch=0)})
    with pytest.raises(SpecError) as refused:
        await apply(opened.engine, opened.catalogue, app)
    assert refused.value.code is Code.INVALID_SPEC
    assert len(refused.value.problems) == 2
    assert await queue_names(opened) == []


SECRET = """app Signed {
  queue Q {}
  webhook W { queue: Q, verify_github { secret_env: "W_SECRET" } }
}
"""


async def test_secrets_must_be_in_the_servers_environment(opened: Opened, environment: dict[str, str]) -> None:
    with pytest.raises(SpecError) as refused:
        await apply_text(opened, SECRET)
    assert "W_SECRET" in refused.value.message
    environment["W_SECRET"] = "x" * 16
    await apply_text(opened, SECRET)


async def test_a_server_does_not_start_without_the_secrets_of_its_apps(store_url: str, clock: ManualClock) -> None:
    async with open_server(store_url, clock=clock, environment={"W_SECRET": "x" * 16}) as opened:
        await apply_text(opened, SECRET)
    with pytest.raises(SkepError) as refused:
        async with open_server(store_url, clock=clock, environment={}):
            pass
    assert refused.value.code is Code.INVALID_SPEC
    assert "W_SECRET" in refused.value.message
    async with open_server(store_url, clock=clock, environment={}, require_secrets=False) as opened:
        assert opened.catalogue.unusable_secrets() == {
            "W_SECRET": "the environment has neither W_SECRET nor W_SECRET_FILE"
        }


async def test_applied_apps_are_there_after_a_restart(store_url: str, clock: ManualClock) -> None:
    async with open_server(store_url, clock=clock, environment={}) as opened:
        await apply_text(opened, SHOP)
    async with open_server(store_url, clock=clock, environment={}) as opened:
        with pytest.raises(SkepError) as refused:
            await opened.engine.push([message(b"{}")])
    assert refused.value.code is Code.MESSAGE_INVALID


CONFLICTS = [
    ("app B { queue Q {} }", "the queue 'Q' of 'A'"),
    ("app B { queue R {}, webhook W { queue: R, verify: none } }", "the webhook 'W' of 'A'"),
    ("app B { entity E { id: input.id } }", "the entity 'E' of 'A'"),
]


@pytest.mark.parametrize(("text", "told"), CONFLICTS)
async def test_two_apps_may_not_declare_the_same(opened: Opened, text: str, told: str) -> None:
    await apply_text(
        opened, "app A { queue Q {}, webhook W { queue: Q, verify: none }, entity E { id: input.id } }"
    )  # fmt: skip
    with pytest.raises(SkepError) as refused:
        await apply_text(opened, text)
    assert refused.value.code is Code.INVALID_SPEC
    assert told in refused.value.message


async def test_removing_an_app_leaves_its_queues(opened: Opened) -> None:
    await apply_text(opened, SHOP)
    removed = await remove(opened.engine, opened.catalogue, "Shop", dry_run=True)
    assert len(removed.parts) == 3
    await remove(opened.engine, opened.catalogue, "Shop")
    assert await queue_names(opened) == ["Free", "Lost", "Orders"]
    await opened.engine.push([message(b"{}")])
    for dry_run in (True, False):
        with pytest.raises(SkepError) as refused:
            await remove(opened.engine, opened.catalogue, "Shop", dry_run=dry_run)
        assert refused.value.code is Code.APP_NOT_FOUND


async def test_a_change_that_the_store_refuses_leaves_the_app_unapplied(opened: Opened) -> None:
    await opened.engine.create_queue(QueueKey("Q"), QueueSettings())
    await opened.engine.push([message(b"1", "Q")])
    with pytest.raises(SkepError) as refused:
        await apply_text(opened, "app A { queue Q { ordering: unordered } }")
    assert refused.value.code is Code.INVALID_SETTING
    assert opened.catalogue.apps == {}


async def test_another_server_hears_of_an_app_within_a_second(empty_tables_dsn: str, clock: ManualClock) -> None:
    async with AsyncExitStack() as stack:
        here, there = [
            await stack.enter_async_context(open_server(empty_tables_dsn, clock=clock, environment={}))
            for _ in range(2)
        ]
        await apply_text(here, SHOP)
        await there.engine.push([message(b"{}")])
        clock.advance(REFRESH_SECONDS)
        await until(lambda: there.catalogue.revision == here.catalogue.revision)
        with pytest.raises(SkepError):
            await there.engine.push([message(b"{}")])


async def test_of_two_servers_that_apply_the_same_queue_at_once_one_is_refused(
    empty_tables_dsn: str, clock: ManualClock
) -> None:
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(open_server(empty_tables_dsn, clock=clock, environment={}))
            for _ in range(4)
        ]
        applied = await asyncio.gather(
            *(apply_text(server, f"app A{number} {{ queue Q {{}} }}") for number, server in enumerate(servers)),
            return_exceptions=True,
        )
        refused = [one for one in applied if isinstance(one, SkepError)]
        assert len(refused) == 3
        assert {error.code for error in refused} == {Code.INVALID_SPEC}
        assert len(await servers[0].engine.records.apps()) == 1


async def test_a_newer_version_that_cannot_be_used_leaves_the_one_before(opened: Opened) -> None:
    await apply_text(opened, SHOP)
    await opened.engine.records.put_app("Shop", b'{"name": "Shop", "future": {}}')
    await opened.engine.records.put_app("Other", b"no JSON at all")
    await opened.catalogue.load()
    assert list(opened.catalogue.apps) == ["Shop"]
    with pytest.raises(SkepError) as refused:
        await opened.engine.push([message(b"{}")])
    assert refused.value.code is Code.MESSAGE_INVALID
