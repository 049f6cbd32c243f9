"""Runs of pipelines: what they told last, the latest of them."""

from __future__ import annotations

from skep.store.rules import PIPELINE_RUNS
from tests.contract.driver import Driver


async def test_a_run_is_kept_as_it_told_of_itself_last(driver: Driver) -> None:
    began = driver.now
    await driver.store.records.put_run(driver.tenant, "run/1", b'{"status":"running"}', began)
    driver.clock.advance(5)
    put = await driver.store.records.put_run(driver.tenant, "run/1", b'{"status":"ok"}', driver.now)

    found = await driver.store.records.run(driver.tenant, "run/1")

    assert found == put
    assert (put.started_at, put.updated_at, put.document) == (began, driver.now, b'{"status":"ok"}')
    assert await driver.store.records.run(driver.tenant, "run/2") is None
    assert await driver.store.records.run("another", "run/1") is None


async def test_the_newest_runs_come_first_and_the_oldest_make_room(driver: Driver) -> None:
    for number in range(PIPELINE_RUNS + 2):
        driver.clock.advance(1)
        await driver.store.records.put_run(driver.tenant, str(number), b"{}", driver.now)

    newest = [run.id for run in await driver.store.records.runs(driver.tenant, 2)]
    kept = await driver.store.records.runs(driver.tenant, PIPELINE_RUNS * 2)

    assert newest == [str(PIPELINE_RUNS + 1), str(PIPELINE_RUNS)]
    assert (len(kept), kept[-1].id) == (PIPELINE_RUNS, "2")
    assert await driver.store.records.runs("another") == []
