"""Slots of the spool: who may have one, what a failing disk leaves behind, and how much fits."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skep.engine.spooling.segments import HEADER_BYTES, Damage, FoundRecord
from skep.engine.spooling.slots import SpoolLimits, adopt_slots, read_segment, set_aside, take_slot
from skep.errors import Code, SkepError
from tests.spool.samples import LIMITS, slot_in


def bodies_in(folder: Path) -> list[bytes]:
    read = [one for path in sorted(folder.glob("*.spool")) for one in read_segment(path)]
    assert not [one for one in read if isinstance(one, Damage)]
    return [one.body for one in read if isinstance(one, FoundRecord)]


def unavailable(call: Any, *arguments: Any) -> SkepError:
    with pytest.raises(SkepError) as caught:
        call(*arguments)
    assert caught.value.code is Code.STORE_UNAVAILABLE
    return caught.value


def test_records_come_back_in_order_over_many_segments(tmp_path: Path) -> None:
    slot = slot_in(tmp_path, LIMITS._replace(segment_bytes=200))
    bodies = [b"%d" % number * 20 for number in range(50)]
    for body in bodies:
        slot.append([body])
    assert len(slot.segments()) > 5
    assert bodies_in(slot.folder) == bodies
    assert slot.size_bytes == sum(path.stat().st_size for path in slot.segments())
    for segment in slot.segments():
        slot.remove(segment)
    assert (slot.size_bytes, bodies_in(slot.folder)) == (0, [])
    slot.append([b"again"])
    assert bodies_in(slot.folder) == [b"again"]
    slot.close()


def test_a_full_spool_takes_nothing_of_a_call(tmp_path: Path) -> None:
    slot = slot_in(tmp_path, LIMITS._replace(max_bytes=300))
    slot.append([b"x" * 100])
    assert unavailable(slot.append, [b"y", b"y" * 200]).details["limit"] == 300
    slot.append([b"z"])
    assert bodies_in(slot.folder) == [b"x" * 100, b"z"]
    slot.close()


def test_a_disk_that_is_nearly_full_takes_nothing(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path)
    slot = slot_in(tmp_path, LIMITS._replace(free_bytes=free.f_bavail * free.f_frsize * 2))
    assert "disk is full" in unavailable(slot.append, [b"x"]).message
    assert slot.segments() == []
    slot.close()


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    slot = slot_in(tmp_path)
    slot.append([b"first"])
    real = getattr(os, call)
    failing = [True]

    def broken(fd: int, *arguments: Any) -> Any:
        if failing.pop() if failing else False:
            if call == "pwrite":  # half of it gets there
                real(fd, bytes(arguments[0])[: len(arguments[0]) // 2], arguments[1])
            raise OSError(errno.ENOSPC if call == "pwrite" else errno.EIO, "it broke")
        return real(fd, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(os, call, broken)
        unavailable(slot.append, [b"second"])
    assert bodies_in(slot.folder) == [b"first"]
    slot.append([b"third"])
    assert bodies_in(slot.folder) == [b"first", b"third"]
    # After a failed sync the kernel cannot be trusted with that file any more.
    assert len(slot.segments()) == (1 if call == "pwrite" else 2)
    slot.close()


def test_a_segment_that_cannot_be_cut_back_is_closed_and_read_only_up_to_what_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = slot_in(tmp_path)
    slot.append([b"first"])
    (segment,) = slot.segments()
    end = segment.stat().st_size

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "it broke")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", broken)
        patched.setattr(os, "ftruncate", broken)
        unavailable(slot.append, [b"second"])
    assert segment.stat().st_size > end
    assert slot.end_of(segment) == end
    slot.append([b"third"])
    assert len(slot.segments()) == 2
    slot.close()


def test_a_segment_that_cannot_be_begun_is_not_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = slot_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", lambda _fd: (_ for _ in ()).throw(OSError(errno.EIO, "it broke")))
        unavailable(slot.append, [b"first"])
    slot.append([b"second"])
    assert bodies_in(slot.folder) == [b"second"]
    slot.close()


def test_a_really_full_disk(tmp_path: Path) -> None:
    """A file system of 64 KiB, where there may be one."""
    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=65536", "none", str(mount)], capture_output=True)
    if made.returncode:
        pytest.skip("may not mount here")
    try:
        slot = take_slot(mount / "spool", LIMITS)
        count = 0

        def fill() -> None:
            nonlocal count
            while True:
                slot.append([b"x" * 5000])
                count += 1

        unavailable(fill)
        assert count >= 5
        assert bodies_in(slot.folder) == [b"x" * 5000] * count
        slot.close()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_each_process_has_a_slot_of_its_own_and_one_that_died_leaves_it_to_others(tmp_path: Path) -> None:
    first, second = slot_in(tmp_path), slot_in(tmp_path)
    assert (first.folder.name, second.folder.name) == ("0", "1")
    second.append([b"left behind"])
    assert adopt_slots(tmp_path / "spool", LIMITS) == []
    second.close()
    (adopted,) = adopt_slots(tmp_path / "spool", LIMITS)
    assert bodies_in(adopted.folder) == [b"left behind"]
    # Whoever comes second gets nothing, for the slot has one owner.
    assert adopt_slots(tmp_path / "spool", LIMITS) == []
    first.close()
    adopted.close()


def test_the_slot_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal; from tests.spool.samples import slot_in;"
        f"slot = slot_in(pathlib.Path({str(tmp_path)!r})); slot.append([b'x']); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=Path.cwd()).returncode == -9
    slot = slot_in(tmp_path)
    assert slot.folder.name == "0"
    assert bodies_in(slot.folder) == [b"x"]
    assert slot.end_of(slot.segments()[0]) is None
    slot.append([b"y"])
    assert len(slot.segments()) == 2
    slot.close()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("a file")
    assert "cannot be used" in unavailable(slot_in, tmp_path).message


def test_what_is_set_aside_is_kept_once(tmp_path: Path) -> None:
    path = set_aside(tmp_path / "refused", "a.record", b"1")
    assert set_aside(tmp_path / "refused", "a.record", b"2") == path
    assert path.read_bytes() == b"1"
    assert [found.name for found in path.parent.iterdir()] == ["a.record"]


def test_an_empty_segment_holds_nothing(tmp_path: Path) -> None:
    limits = SpoolLimits(1 << 20, 0, HEADER_BYTES)
    slot = slot_in(tmp_path, limits)
    slot.append([b"1"])
    slot.append([b"2"])
    assert len(slot.segments()) == 2
    slot.close()
