"""`skep spool`: what is not stored yet, by the server and by the files alone."""

from __future__ import annotations

from pathlib import Path

import skep
from skep.engine.push.spool.record import encode
from tests.cli.command import Command
from tests.spool.damage import damage, spoil_page
from tests.spool.samples import record, slot_in


def test_status_asks_the_server(command: Command) -> None:
    found = command("spool", "status").json()
    assert found["spool"]["state"] == "up"
    assert set(found["qos0"]) == {"pending", "bytes", "flushed", "lost"}


def test_files_are_looked_at_without_a_server_and_whoever_has_them(command: Command, tmp_path: Path) -> None:
    assert command("spool", "files", "--data-folder", str(tmp_path)).json() == []
    slot, other = slot_in(tmp_path), slot_in(tmp_path)
    slot.append([record("1", "2"), record("3")])
    other.append([record("4"), record("5 is damaged")])
    other.set_aside("x.record", encode(record("7")))
    other.close()
    damage(other.folder, b"5 is", b"5 was"[:4])
    first, second = command("spool", "files", "--data-folder", str(tmp_path)).json()
    assert (first["inUse"], first["records"], first["messages"], first["damaged"]) == (True, 2, 3, 0)
    assert (second["inUse"], second["records"], second["damaged"], second["setAside"]) == (False, 1, 1, 1)
    assert first["oldestAt"].startswith("1970-01-01")
    assert first["bytes"] > 0
    exported = command("spool", "export", "--data-folder", str(tmp_path)).lines()
    assert [line["payload"] for line in exported] == [1, 2, 3, 4, 7]
    slot.close()
    spoil_page(other.folder, b"5 wa")
    _, second = command("spool", "files", "--data-folder", str(tmp_path)).json()
    assert (second["records"], second["damaged"]) == (0, 1)


def test_what_was_set_aside_can_be_pushed_again_and_is_stored_once(
    command: Command, client: skep.Client, tmp_path: Path
) -> None:
    one = record('{"a":1}', "[2]", queue="again", partition="p", headers=b'{"h":"1"}')
    raw = record("bytes", queue="again", partition="p", content_type="text/plain", transaction_id="own")
    slot = slot_in(tmp_path)
    for kept_one in (one, raw):
        slot.set_aside(f"{kept_one.name}.record", encode(kept_one))
    slot.close()
    lines = command("spool", "export", str(slot.folder / "refused"))
    assert len(lines.lines()) == 3
    for _ in range(2):
        assert command("push", "--items", stdin=lines.out).code == 0
    found = client.pop("again", batch=10)
    assert [message.payload for message in found] == [b'{"a":1}', b"[2]", b"bytes"]
    assert found[0].headers == {"h": "1"}
    assert found[2].transaction_id == "own"
