"""Slots of the spool: who may have one, what a failing disk leaves behind, and how much fits."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from skep.engine.push.spool.inspect import records
from skep.engine.push.spool.push_file import open_to_read, rows
from skep.engine.push.spool.record import Record
from skep.engine.push.spool.slot import FILE, MENDED, Slot, adopt_slots, take_slot
from skep.errors import Code, SkepError
from tests.spool.damage import spoil_page
from tests.spool.failing_disk import failing_disk
from tests.spool.samples import LIMITS, record, slot_in


def append(slot: Slot, *texts: str) -> None:
    slot.append([record(text) for text in texts])


def texts_in(folder: Path) -> list[str]:
    """What lies in a slot, or in all of a spool, whoever has it."""
    return texts(records(folder))


def texts(found: Any) -> list[str]:
    return [one.batch.messages[0].payload.decode() for one in found]


def loaded(slot: Slot) -> list[str]:
    seen: list[Record] = []
    slot.load(seen.append)
    return texts(seen)


def unavailable(call: Any, *arguments: Any) -> SkepError:
    with pytest.raises(SkepError) as caught:
        call(*arguments)
    assert caught.value.code is Code.STORE_UNAVAILABLE
    return caught.value


def test_pushes_come_back_in_order_and_once_and_an_empty_slot_has_no_file(tmp_path: Path) -> None:
    slot = slot_in(tmp_path)
    written = [str(number) for number in range(50)]
    for text in written:
        append(slot, text)
    assert texts_in(slot.folder) == written
    assert slot.size_bytes >= 4096

    taken = [one for _ in range(6) for one in slot.take(10, 1 << 20)[0]]
    assert texts(one.record for one in taken) == written
    assert slot.take(10, 1 << 20) == ([], 0)
    slot.finish([one.number for one in taken[:20]])
    assert texts_in(slot.folder) == written[20:]
    slot.finish([one.number for one in taken[20:]])
    assert (slot.size_bytes, [path.name for path in slot.folder.iterdir()]) == (0, ["lock"])

    append(slot, "again")
    assert texts(one.record for one in slot.take(10, 1 << 20)[0]) == ["again"]
    slot.close()


def test_the_folder_of_a_new_file_is_synced_before_its_first_push_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = slot_in(tmp_path)
    synced: list[tuple[Path, bool]] = []
    sync = "skep.engine.push.spool.slot.sync_folder"
    monkeypatch.setattr(sync, lambda folder: synced.append((folder, (folder / FILE).exists())))
    append(slot, "1")
    append(slot, "2")

    assert synced == [(slot.folder, True)]
    slot.close()


def test_no_more_is_taken_at_once_than_is_asked_for(tmp_path: Path) -> None:
    slot = slot_in(tmp_path)
    append(slot, *("x" * 1000 for _ in range(20)))
    assert len(slot.take(3, 1 << 20)[0]) == 3
    assert len(slot.take(1000, 2500)[0]) == 3  # the last one is over it
    slot.close()


def test_one_call_takes_one_sync_however_many_pushes_it_has(tmp_path: Path) -> None:
    with failing_disk() as disk:
        slot = slot_in(tmp_path)
        append(slot, "first")
        for count in (1, 100):
            before = disk.syncs
            append(slot, *(str(number) for number in range(count)))
            assert disk.syncs == before + 1
        slot.close()


def test_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    slot = slot_in(tmp_path)
    append(slot, "1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in slot.folder.iterdir()}
    assert modes == dict.fromkeys(["lock", FILE, f"{FILE}-wal", f"{FILE}-shm"], 0o600)
    slot.close()


def test_a_full_spool_takes_nothing_of_a_call(tmp_path: Path) -> None:
    slot = slot_in(tmp_path, LIMITS._replace(max_bytes=40_000))
    append(slot, "x" * 20_000)
    assert unavailable(append, slot, "y", "y" * 20_000).details["limit"] == 40_000
    append(slot, "z")
    assert texts_in(slot.folder) == ["x" * 20_000, "z"]
    slot.finish([1])  # and there is room again
    append(slot, "y" * 20_000)
    slot.close()


def test_a_disk_that_is_nearly_full_takes_nothing(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    slot = slot_in(tmp_path, LIMITS._replace(free_bytes=free.f_bavail * free.f_frsize * 2))
    assert "disk is full" in unavailable(append, slot, "x").message
    assert texts_in(slot.folder) == []
    slot.close()


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, call: str) -> None:
    with failing_disk() as disk:
        slot = slot_in(tmp_path)
        append(slot, "first")
        disk.failing = {call}
        unavailable(append, slot, "second")
        disk.failing = set()
        assert texts_in(slot.folder) == ["first"]
        append(slot, "third")
        assert texts_in(slot.folder) == ["first", "third"]
        slot.close()
        assert loaded(take_slot(tmp_path / "spool", LIMITS)) == ["first", "third"]


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_file_that_cannot_be_begun_is_not_in_the_way(tmp_path: Path, call: str) -> None:
    with failing_disk() as disk:
        slot = slot_in(tmp_path)
        disk.failing = {call}
        unavailable(append, slot, "first")
        disk.failing = set()
        append(slot, "second")
        assert texts_in(slot.folder) == ["second"]
        slot.close()


def test_a_really_full_disk(tmp_path: Path) -> None:
    """A file system of 256 KiB, where there may be one."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=262144", "none", str(mount)], capture_output=True)
    if made.returncode:
        pytest.skip("may not mount here")
    try:
        slot = take_slot(mount / "spool", LIMITS)
        slot.load(lambda _: None)
        count = 0

        def fill() -> None:
            nonlocal count
            while True:
                append(slot, "x" * 5000)
                count += 1

        unavailable(fill)
        assert count >= 5
        assert texts_in(slot.folder) == ["x" * 5000] * count
        for one in slot.take(1000, 1 << 30)[0]:  # it can be drained though there is no room
            slot.finish([one.number])
        append(slot, "y")
        assert texts_in(slot.folder) == ["y"]
        slot.close()
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def test_each_process_has_a_slot_of_its_own_and_one_that_died_leaves_it_to_others(tmp_path: Path) -> None:
    first, second = slot_in(tmp_path), slot_in(tmp_path)
    assert (first.folder.name, second.folder.name) == ("0", "1")
    append(second, "left behind")
    assert adopt_slots(tmp_path / "spool", LIMITS) == []
    second.close()
    (adopted,) = adopt_slots(tmp_path / "spool", LIMITS)
    assert loaded(adopted) == ["left behind"]
    # Whoever comes second gets nothing, for the slot has one owner.
    assert adopt_slots(tmp_path / "spool", LIMITS) == []
    first.close()
    adopted.close()


def test_the_slot_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal; from tests.spool.samples import record, slot_in;"
        f"slot = slot_in(pathlib.Path({str(tmp_path)!r})); slot.append([record('x')]); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=Path.cwd()).returncode == -9
    slot = take_slot(tmp_path / "spool", LIMITS)
    assert slot.folder.name == "0"
    assert loaded(slot) == ["x"]
    append(slot, "y")
    assert texts_in(slot.folder) == ["x", "y"]
    slot.close()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    assert "cannot be used" in unavailable(slot_in, tmp_path).message


def test_a_file_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    slot = slot_in(tmp_path)
    (slot.folder / FILE).mkdir()
    assert "cannot be used" in unavailable(slot.load, lambda _: None).message
    slot.close()


def test_what_is_set_aside_is_kept_once(tmp_path: Path) -> None:
    slot = slot_in(tmp_path)
    path = slot.set_aside("a.record", b"1")
    assert slot.set_aside("a.record", b"2") == path
    assert path.read_bytes() == b"1"
    assert [found.name for found in path.parent.iterdir()] == ["a.record"]
    slot.close()


def test_who_reads_the_file_for_long_neither_delays_nor_harms_its_owner(tmp_path: Path) -> None:
    """`skep spool export` into a pipe that is full, while the file is emptied, removed and begun anew."""
    slot = slot_in(tmp_path)
    append(slot, "1", "2")
    with closing(open_to_read(slot.folder / FILE)) as reader, closing(rows(reader)) as reading:
        assert next(reading).number == 1
        slot.finish([1, 2])
        append(slot, "3")
        assert next(reading).number == 2
    append(slot, "4")
    slot_files = [path for path in slot.folder.iterdir() if path.name.startswith(FILE)]
    copy = tmp_path / "copy" / "0"
    copy.mkdir(parents=True)
    for path in slot_files:  # what a kill would leave
        if path.suffix != ".db-shm":
            (copy / path.name).write_bytes(path.read_bytes())
    assert texts_in(copy) == ["3", "4"]
    slot.close()


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_a_file_of_which_nothing_is_left_is_replaced(tmp_path: Path, content: bytes) -> None:
    slot = slot_in(tmp_path)
    (slot.folder / FILE).write_bytes(content)
    seen: list[Record] = []
    assert slot.load(seen.append) == bool(content)
    append(slot, "new")
    assert texts_in(slot.folder) == ["new"]
    kept = list((slot.folder / "refused").glob("*"))
    assert [(path.name, path.read_bytes()) for path in kept] == ([("damaged-1.db", content)] if content else [])
    slot.close()


@pytest.mark.parametrize("body", ["NULL", "7", "'text'"])
def test_a_push_whose_body_is_none_is_set_aside(tmp_path: Path, body: str) -> None:
    slot = slot_in(tmp_path)
    append(slot, "1", "2", "3")
    with closing(apsw.Connection(str(slot.folder / FILE))) as db:
        db.execute(f"UPDATE push SET body = {body} WHERE number = 2")
    taken, damaged = slot.take(10, 1 << 20)
    assert (texts(one.record for one in taken), damaged) == (["1", "3"], 1)
    assert len(list((slot.folder / "refused").iterdir())) == 1
    slot.close()


def test_a_damaged_file_does_not_take_the_place_of_one_that_was_set_aside_before(tmp_path: Path) -> None:
    slot = slot_in(tmp_path)
    for _ in range(2):
        slot.close()
        (slot.folder / FILE).write_bytes(b"no database" * 1000)
        slot = slot_in(tmp_path)
    assert sorted(path.name for path in (slot.folder / "refused").iterdir()) == ["damaged-1.db", "damaged-2.db"]
    slot.close()


@pytest.mark.parametrize("step", ["begun", "set aside"])
def test_I1_a_crash_while_a_damaged_file_is_replaced_loses_nothing_of_what_can_be_read(
    tmp_path: Path, step: str
) -> None:
    slot = slot_in(tmp_path)
    append(slot, *(f"text-{number:02}" + "." * 300 for number in range(60)))
    slot.close()
    spoil_page(slot.folder, b"text-30")
    if step == "begun":
        (slot.folder / MENDED).write_bytes(b"")
    else:
        damaged = (slot.folder / FILE).read_bytes()
        slot = slot_in(tmp_path)  # replaces it
        slot.close()
        (slot.folder / FILE).rename(slot.folder / MENDED)
        assert damaged == (slot.folder / "refused" / "damaged-1.db").read_bytes()
    (adopted,) = adopt_slots(tmp_path / "spool", LIMITS)
    found = [int(text[5:7]) for text in loaded(adopted)]
    assert found == sorted(found)
    assert {0, 59} < set(found)
    assert 45 < len(found) < 60
    adopted.close()
