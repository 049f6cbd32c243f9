"""The layer that spoils the disk of a process while it runs, and what a server does on such a disk."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.client import AsyncClient
from skep.errors import Code, SkepError
from torture.faults.fault import BOTH
from torture.layers import can_compile, environment
from torture.layers.disk import NO_GROWTH, NO_WRITES, ProcessDisk
from torture.power_cut import HEADER, MAGIC, SECTORS, SYNC, WRITE, Loss, unsynced
from torture.round import Plan, Round
from torture.site import DATA_FOLDER, Site

pytestmark = pytest.mark.skipif(not can_compile(), reason="layers need Linux and a C compiler")

CHILD = """
import os, sys

for line in sys.stdin:
    try:
        found = eval(line)
    except OSError as error:
        found = error.strerror
    print(found, flush=True)
"""
OLD, NEW = b"o" * 8192, b"n" * 8192


class Program:
    """A process with the layer, that does as it is told, with a file under the root that it has open."""

    def __init__(self, disk: ProcessDisk) -> None:
        self.disk = disk
        self.file = disk.root / "file"
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", CHILD],
            env={**os.environ, **environment([disk.layer])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.fd = self.opened("file")

    def opened(self, name: str, flags: str = "os.O_RDWR | os.O_CREAT") -> int:
        return int(self.does(f"os.open({str(self.disk.root / name)!r}, {flags})"))

    def does(self, expression: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{expression}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def writes(self, data: bytes, at: int, fd: int | None = None) -> str:
        return self.does(f"os.pwrite({fd or self.fd}, {data!r}, {at})")

    def syncs(self, fd: int | None = None) -> str:
        return self.does(f"os.fsync({fd or self.fd})")

    def loses_power(self, way: str, seed: int = 1) -> Loss:
        self.end()
        return self.disk.cut_power(Drawn(way, seed))

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Drawn(random.Random):
    """Chance, but for the way in which writes are lost, and the size of sectors."""

    def __init__(self, way: str, seed: int) -> None:
        super().__init__(seed)
        self._drawn = [way, SECTORS[0]]

    def choice(self, seq):  # type: ignore[no-untyped-def] # as in the standard library
        return self._drawn.pop(0) if self._drawn else super().choice(seq)


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the layer, which is compiled once."""
    return tmp_path_factory.mktemp("layers")


@pytest.fixture
def program(tmp_path: Path, layers: Path) -> Iterator[Program]:
    root = tmp_path / "disk"
    root.mkdir()
    disk = ProcessDisk(tmp_path.name, layers)
    disk.holds(root)
    program = Program(disk)
    disk.layer.check()
    program.writes(OLD, 0)
    yield program
    program.end()


def test_a_layer_that_is_told_nothing_changes_nothing(program: Program) -> None:
    assert program.writes(NEW, 0) == "8192"
    assert program.syncs() == "None"
    assert program.file.read_bytes() == NEW


def test_so_many_syncs_fail_and_only_those_of_files_under_the_root(program: Program, tmp_path: Path) -> None:
    beside = tmp_path / ("x" * len(program.disk.root.name))
    beside.mkdir()
    other = program.opened(f"../{beside.name}/file")
    with program.disk.failing_syncs(2):
        assert program.syncs(other) == "None"
        assert [program.syncs(), program.does(f"os.fdatasync({program.fd})")] == ["Input/output error"] * 2
        assert program.syncs() == "None"


@pytest.mark.parametrize("how", [NO_GROWTH, NO_WRITES])
def test_a_full_disk_takes_what_it_has_room_for_and_then_no_more(program: Program, how: int) -> None:
    with program.disk.full(how, 1000):
        assert program.writes(NEW, 8192) == "1000"
        assert program.writes(NEW, 9192) == "No space left on device"
        assert program.does(f"os.posix_fallocate({program.fd}, 9192, 10)") == "No space left on device"
        assert program.does(f"os.ftruncate({program.fd}, 10000)") == "No space left on device"
        assert program.does(f"os.writev({program.opened('new')}, [b'1', b'2'])") == "No space left on device"
        assert program.writes(NEW, 0) == ("8192" if how == NO_GROWTH else "No space left on device")
    assert program.writes(NEW, 9192) == "8192"


def test_a_slow_sync_is_counted_and_done(program: Program) -> None:
    program.disk.begin_journal()
    with program.disk.slow_syncs(1):
        assert program.syncs() == "None"  # with nothing to do: a power cut does not wait for this one
        program.writes(NEW, 0)
        assert program.syncs() == "None"
    assert program.disk.layer.read("delayed") == 1
    assert unsynced(program.disk.end_journal()) == {}


def test_a_power_cut_takes_all_that_was_not_synced(program: Program) -> None:
    program.disk.begin_journal()
    program.writes(NEW[:100], 0)
    program.syncs()
    program.writes(NEW[:100], 4000)
    program.writes(NEW, 8000)
    loss = program.loses_power("all")

    assert (loss.files, loss.unsynced) == (1, 2)
    assert program.file.read_bytes() == NEW[:100] + OLD[100:]


def test_a_power_cut_brings_back_what_was_truncated_and_leaves_names(program: Program) -> None:
    (program.disk.root / "again").write_bytes(OLD)
    program.disk.begin_journal()
    program.does(f"os.ftruncate({program.fd}, 0)")
    program.writes(b"short", 0)
    name = str(program.file)
    program.does(f"os.rename({name!r}, {name + '.moved'!r})")
    for emptied in ("again", "new"):
        program.writes(b"short", 0, program.opened(emptied, "os.O_WRONLY | os.O_CREAT | os.O_TRUNC"))
    program.loses_power("all")

    assert (program.disk.root / "file.moved").read_bytes() == OLD
    assert (program.disk.root / "again").read_bytes() == OLD
    assert (program.disk.root / "new").read_bytes() == b""


def test_a_torn_write_leaves_each_sector_old_or_new(program: Program) -> None:
    program.disk.begin_journal()
    program.writes(NEW, 0)
    program.loses_power("torn")

    found = program.file.read_bytes()
    sectors = [found[at : at + SECTORS[0]] for at in range(0, len(OLD), SECTORS[0])]
    assert set(sectors) == {OLD[: SECTORS[0]], NEW[: SECTORS[0]]}


def test_what_is_lost_from_a_moment_on_is_the_end_of_what_was_written(program: Program) -> None:
    program.disk.begin_journal()
    for place in range(16):
        program.writes(NEW[:512], 512 * place)
    program.loses_power("from a moment on")

    found = program.file.read_bytes()
    kept = found.count(b"n")
    assert 0 < kept < len(OLD)
    assert found == NEW[:kept] + OLD[kept:]


def test_a_sync_covers_what_was_done_before_it_began_and_nothing_that_was_still_under_way() -> None:
    journal = b""
    for kind, done in ((WRITE, 1), (WRITE, 0), (WRITE, 4), (SYNC, 3)):
        journal += MAGIC + HEADER.pack(0, len(journal), kind, 1, 1, 0, 0, 0, 0, done)[len(MAGIC) :]

    assert [change.done for change in unsynced(journal)[1, 1]] == [0, 4]


def test_writes_to_a_file_that_was_removed_or_replaced_are_forgotten_as_another_may_get_its_inode(
    program: Program,
) -> None:
    program.disk.begin_journal()
    program.writes(NEW, 0)
    replaced = program.opened("replaced")
    program.writes(NEW, 0, replaced)
    kept = program.opened("kept")
    program.writes(NEW, 0, kept)
    folder = str(program.disk.root)
    program.does(f"os.unlink('{folder}/file')")
    program.does(f"os.rename('{folder}/kept', '{folder}/replaced')")

    status = (program.disk.root / "replaced").stat()
    assert list(unsynced(program.disk.end_journal())) == [(status.st_dev, status.st_ino)]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Site("sqlite", tmp_path, {"disk"}) as site:
        yield site


async def refusal(client: AsyncClient, payload: str) -> SkepError:
    with pytest.raises(SkepError) as refused:
        await client.push("orders", [payload])
    return refused.value


async def everything(client: AsyncClient) -> list[str]:
    """The payloads of the queue, in the order of its log."""
    return [json.loads(bytes(message.payload)) async for message in client.messages("orders")]


class Ruin:
    """A fault that no store survives."""

    name = "ruin"
    description = "overwrites the store"
    stores = BOTH
    is_outage = True
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        site.server.kill()
        for path in (site.folder / DATA_FOLDER).iterdir():
            path.write_bytes(chance.randbytes(8192))
        await site.recover()
        return "ruined the store"


@pytest.mark.slow
async def test_I1_a_store_that_does_not_come_back_is_a_broken_promise(site: Site) -> None:
    outcome = await Round(site, Plan(1, 0, clients=1, steps=2, faults=("ruin",), injections=1), {"ruin": Ruin()}).run()

    assert [violation.promise for violation in outcome.violations] == ["I1"]
    assert "STORE_CORRUPT" in outcome.violations[0].text


async def test_I1_a_server_on_a_bad_disk_refuses_clearly_and_keeps_what_it_answered(site: Site) -> None:
    async with AsyncClient(site.url, attempts=1) as client:
        await client.push("orders", ["first"])
        with site.disk.failing_syncs(1):
            failed = await refusal(client, "not synced")
        await client.push("orders", ["second"])
        with site.disk.full(NO_WRITES, 0):
            full = await refusal(client, "no room")
        site.disk.begin_journal()
        with site.disk.slow_syncs(1):
            await client.push("orders", ["third"])
        site.server.kill()
        site.disk.cut_power(Drawn("all", 1))
        await site.recover()

        assert failed.code is Code.STORE_UNAVAILABLE
        assert "check the disk" in failed.message
        assert full.code is Code.STORE_FULL
        assert "free some space" in full.message
        assert await everything(client) == ["first", "second", "third"]
