"""Damaged files of the spool: they are set aside, and what can be read of them is stored once and in order."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from skep.engine.push.spool.spool import ADOPT_SECONDS, SpoolState
from skep.errors import Code, SkepError
from skep.model import (
    PushStatus,
)
from tests.spool.damage import damage, damage_while_open, spoil_page
from tests.spool.driver import SpoolDriver
from tests.spool.outage import CutOff
from tests.spool.words import statuses


async def test_a_damaged_record_is_set_aside_and_the_others_are_stored(driver: SpoolDriver, store: CutOff) -> None:
    await driver.cut()
    for number in range(5):
        await driver.push(f"message-{number}")
    await driver.stop()
    damage(driver.folder / "0", b"message-2", b"massage-2")
    store.down = store.suspended = False
    await driver.start()
    await driver.drained()
    await driver.until(lambda: driver.figures.failed == 1, passing=0.5)
    assert await driver.log() == [f"message-{number}" for number in (0, 1, 3, 4)]
    (aside,) = driver.folder.rglob("refused/*")
    assert (aside.suffix, b"massage-2" in aside.read_bytes()) == (".damaged", True)
    assert not list(driver.folder.rglob("pushes.db*"))


async def test_a_damaged_file_is_set_aside_and_what_can_be_read_of_it_is_stored_once_and_in_order(
    driver: SpoolDriver, store: CutOff
) -> None:
    """A page in the midst is zeros. One push was stored before, and not yet removed from the file."""
    await driver.cut()
    for number in range(100):
        await driver.push(f"message-{number:02}" + "." * 300)
    await driver.stop()
    spoil_page(driver.folder / "0", b"message-50")
    store.down = store.suspended = False
    with capture_logs() as logs:
        await driver.start()
    await driver.drained()
    log = [int(text[8:10]) for text in await driver.log()]
    lost = sorted(set(range(100)) - set(log))
    assert log == sorted(log)
    assert 50 in lost
    assert lost == list(range(lost[0], lost[0] + len(lost)))
    assert len(lost) < 15
    assert driver.figures.failed == 1
    (told,) = [line for line in logs if "is damaged" in line["event"]]
    assert "push what is missing again" in told["event"]
    assert told["readable_pushes"] == len(log)
    assert list(driver.folder.rglob("refused/*")) == [driver.folder / "0" / "refused" / "damaged-1.db"]
    assert told["kept"] == str(driver.folder / "0" / "refused" / "damaged-1.db")


@pytest.mark.parametrize("away", [True, False])
async def test_I13_a_file_found_damaged_while_it_is_used_is_replaced_and_nothing_readable_overtaken(
    driver: SpoolDriver, store: CutOff, away: bool
) -> None:
    store.spoil, store.spoiled_by = {b"1"}, Code.STORE_BUSY
    await driver.cut()
    await driver.push("1")
    await driver.push("2")
    store.down = away
    if not away:
        await driver.until(lambda: driver.figures.state is SpoolState.DRAINING, passing=0.5)
    damage_while_open(driver)
    with pytest.raises(SkepError) as caught:
        await driver.push("refused" * 10_000)  # which needs free pages
    assert caught.value.code is Code.STORE_UNAVAILABLE
    await driver.until(lambda: driver.figures.failed == 1)
    await driver.until(lambda: driver.ready)
    assert statuses(await driver.push("3")) == {PushStatus.BUFFERED}
    store.spoil = set()
    await driver.mend()
    assert await driver.log() == ["1", "2", "3"]
    assert not driver.diverted


async def test_I13_while_a_damaged_file_is_replaced_no_push_overtakes_what_may_be_in_it(
    driver: SpoolDriver, store: CutOff
) -> None:
    assert driver.engine.spool is not None
    driver.engine.spool._own = None
    with pytest.raises(SkepError) as caught:
        await driver.push("1")
    assert (caught.value.code, store.pushes) == (Code.STORE_UNAVAILABLE, [])
    await driver.until(lambda: driver.ready, passing=1)
    assert statuses(await driver.push("2")) == {PushStatus.STORED}


async def test_a_folder_that_cannot_be_read_is_looked_at_now_and_then_only(driver: SpoolDriver) -> None:
    """For what other processes left. Else the server would do nothing but look, and log that it failed."""
    spool = driver.engine.spool
    assert spool is not None
    driver.folder.rename(driver.folder.with_name("away"))
    with capture_logs() as logs:

        def failures() -> int:
            return sum("draining the spool failed" in line["event"] for line in logs)

        driver.clock.advance(ADOPT_SECONDS)
        await driver.until(lambda: failures() > 0)
        for _ in range(20):
            await spool._in_thread(int)  # after whatever else it does there

        assert failures() == 1
        await driver.until(lambda: failures() > 1, passing=1)
    driver.folder.with_name("away").rename(driver.folder)


async def test_what_an_earlier_version_has_spooled_is_left_to_that_version(driver: SpoolDriver) -> None:
    await driver.stop()
    earlier = driver.folder / "3" / "0000000001.spool"
    earlier.parent.mkdir()
    earlier.write_bytes(b"SKEPSPL")
    with pytest.raises(SkepError) as caught:
        await driver.start()
    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert "start that version once more" in caught.value.message
    assert earlier.read_bytes() == b"SKEPSPL"
    earlier.unlink()
    await driver.start()
