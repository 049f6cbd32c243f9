"""Encrypted queues by the real commands: made, rotated, rewrapped and shredded, and a server that does not start without its key."""

from __future__ import annotations

from pathlib import Path

import pytest

import skep
from skep.errors import Code, SkepError
from tests.cli.command import Command
from tests.support.serving import serving

CARD = {"card": "4242424242424242"}


def master(name: str) -> str:
    return Command("", "default")("encryption", "master", name).out


def keys_in(folder: Path, *lines: str) -> str:
    path = folder / "master.keys"
    path.write_text("".join(lines), encoding="utf-8")
    path.chmod(0o600)
    return f"encryption.master_keys=file:{path}"


@pytest.mark.slow
def test_the_life_of_an_encrypted_queue(tmp_path: Path) -> None:
    old, new = master("old"), master("new")
    with serving("--set", keys_in(tmp_path, old), folder=tmp_path) as server:
        skep_command = Command(f"http://127.0.0.1:{server.listening()}", "default")
        made = skep_command("queue", "create", "payments", "--encryption-enabled").json()
        assert made["settings"]["encryption_enabled"] is True
        with skep.Client(skep_command.url) as client:
            client.push("payments", CARD, partition="a")
            first = skep_command("encryption", "rotate", "payments").json()
            client.push("payments", CARD, partition="b")
            assert [m.json() for m in client.pop("payments", batch=2, lease_seconds=0.01)] == [CARD, CARD]
        keys = skep_command("encryption", "list").json()
        assert [key["queue"] for key in keys] == ["payments", "payments"]
        assert {key["master"] for key in keys} == {"old"}
        assert keys[-1]["id"] == first["id"]
        assert skep_command("encryption", "rotate", "nope").code == 4
    assert b"4242" not in b"".join(path.read_bytes() for path in (tmp_path / "skep-data").iterdir())

    with serving("--set", keys_in(tmp_path, new, old), folder=tmp_path) as server:
        skep_command = Command(f"http://127.0.0.1:{server.listening()}", "default")
        assert skep_command("encryption", "rewrap").json() == {"rewrapped": 2}

    with serving("--set", keys_in(tmp_path, new), folder=tmp_path) as server:
        skep_command = Command(f"http://127.0.0.1:{server.listening()}", "default")
        with skep.Client(skep_command.url) as client:
            assert [m.json() for m in client.pop("payments", batch=2, group="audit")] == [CARD, CARD]
            assert skep_command("encryption", "shred", "payments", "--dry-run").json() == {"keys": 2}
            assert skep_command("encryption", "shred", "payments").code == 1  # there is nobody to ask
            assert skep_command("encryption", "shred").code == 1
            assert skep_command("encryption", "shred", "payments", "--yes").json() == {"keys": 2}
            assert client.pop("payments", batch=2, group="late") == []


def test_a_server_does_not_start_without_the_key_that_it_needs(tmp_path: Path) -> None:
    first = keys_in(tmp_path, master("first"))
    with (
        serving("--set", first, folder=tmp_path) as server,
        skep.Client(f"http://127.0.0.1:{server.listening()}") as client,
    ):
        client.configure("payments", encryption_enabled=True)
        client.push("payments", CARD)
    for arguments in ((), ("--set", keys_in(tmp_path, master("second")))):
        with serving(*arguments, folder=tmp_path) as process:
            assert process.ended() != 0
            assert any("master key" in line for line in process.lines)


def test_a_server_without_a_master_key_refuses_to_encrypt(tmp_path: Path) -> None:
    with (
        serving(folder=tmp_path) as server,
        skep.Client(f"http://127.0.0.1:{server.listening()}", attempts=1) as client,
    ):
        with pytest.raises(SkepError) as refused:
            client.configure("payments", encryption_enabled=True)
        assert refused.value.code is Code.KEY_UNAVAILABLE
