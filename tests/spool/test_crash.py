"""Killed, or cut off from power, at any write: a slot has all that it acknowledged, in order, and nothing by halves (I1, I15)."""

from __future__ import annotations

import itertools
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from skep.engine.push.spool.record import Record
from skep.engine.push.spool.slot import Slot, take_slot
from tests.spool.samples import LIMITS, record, slot_in
from tests.support.crash import CrashingVfs
from tests.support.forked import FORKED

MODES = ("kill", "tear", "power")
SAMPLES = 24

Told = tuple[str, list[int], bool]
"""What is done, to which pushes, and whether it is done."""


def run_script(folder: str, deadly: int, mode: str, pipe: Connection) -> None:
    """The body of the process: to the end, or to the deadly write."""
    vfs = CrashingVfs(deadly, mode)
    slot = slot_in(Path(folder))
    texts = itertools.count(1)

    def append(count: int, size: int = 10) -> None:
        added = [next(texts) for _ in range(count)]
        pipe.send(("append", added, False))
        slot.append([record(f"{text:06}" + "x" * size) for text in added])
        pipe.send(("append", added, True))

    def store(count: int) -> None:
        taken, _ = slot.take(count, 1 << 30)
        done = [text_of(one.record) for one in taken]
        pipe.send(("finish", done, False))
        slot.finish([one.number for one in taken])
        pipe.send(("finish", done, True))

    for _ in range(3):
        append(1)
    append(7, 3000)
    store(4)
    append(5, 900_000)  # more pages than SQLite leaves in its log
    append(2)
    store(3)
    slot.give_up(9, "no more")
    append(30, 200)
    store(1000)  # all of it, and the file is gone
    append(3)
    append(1, 20_000)
    store(2)
    slot.close()
    pipe.send(vfs.writes)
    pipe.close()


def text_of(one: Record) -> int:
    return int(one.batch.messages[0].payload[:6])


def run_until(folder: Path, deadly: int, mode: str) -> tuple[list[Told], int | None]:
    ours, theirs = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=run_script, args=(str(folder), deadly, mode, theirs))
    process.start()
    theirs.close()
    told: list[Told | int] = []
    try:
        while True:
            told.append(ours.recv())
    except EOFError:
        process.join()
    writes = told.pop() if told and isinstance(told[-1], int) else None
    assert process.exitcode == (-9 if writes is None else 0)
    return told, writes  # type: ignore[return-value]


def check_what_is_left(folder: Path, told: list[Told]) -> None:
    slot: Slot = take_slot(folder / "spool", LIMITS)
    found: list[Record] = []
    assert slot.load(found.append) == 0, "the file is damaged"
    slot.close()
    there = [text_of(one) for one in found]
    assert there == sorted(set(there)), "I13: the order"
    appended, finished = set[int](), set[int]()
    for what, texts, is_done in told:
        if what == "append" and is_done:
            appended |= set(texts)
        elif what == "finish":
            finished |= set(texts)
    assert appended - finished <= set(there), "I1: an acknowledged push is lost"
    begun = [set(texts) for what, texts, _ in told if what == "append"]
    # A push that was being removed may come back, for it was stored with a receipt; of a call all or nothing is there.
    assert set(there) <= set().union(*begun), "I2"
    last = begun[-1] if begun else set()
    assert last <= set(there) | finished or not last & set(there), "I15: half of a call"


def crash_and_check(folder: Path, deadly: int, mode: str) -> None:
    place = folder / f"{mode}-{deadly}"
    place.mkdir()
    told, _ = run_until(place, deadly, mode)
    check_what_is_left(place, told)


@pytest.fixture(scope="module")
def writes(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many writes the whole script takes."""
    folder = tmp_path_factory.mktemp("whole")
    told, count = run_until(folder, 0, "kill")
    check_what_is_left(folder, told)
    assert count is not None
    return count


def test_I1_I15_what_was_acknowledged_survives_a_death_at_any_write(writes: int, tmp_path: Path) -> None:
    modes = itertools.cycle(MODES)
    for number in range(SAMPLES):
        crash_and_check(tmp_path, 1 + number * writes // SAMPLES, next(modes))


@pytest.mark.parametrize("mode", MODES)
def test_I1_I15_what_was_acknowledged_survives_a_death_while_the_file_is_begun(
    writes: int, tmp_path: Path, mode: str
) -> None:
    for deadly in range(1, 16):
        crash_and_check(tmp_path, deadly, mode)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_I1_I15_what_was_acknowledged_survives_a_death_at_every_write(writes: int, tmp_path: Path, mode: str) -> None:
    for deadly in range(1, writes + 1):
        crash_and_check(tmp_path, deadly, mode)


@pytest.mark.parametrize("before_end", [2, 1000])
def test_a_disk_that_lies_is_found_out(writes: int, tmp_path: Path, before_end: int) -> None:
    with pytest.raises(AssertionError, match=r"I1|damaged"):
        crash_and_check(tmp_path, writes - before_end, "lie")
