"""`skep store`: on the store itself, and never under a server that has it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.process import run_skep
from tests.support.serving import serving


def skep(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_skep(*arguments, cwd=folder, text=True, timeout=60)


def test_a_file_is_written_anew_and_the_command_tells_how_large_it_was_and_is(tmp_path: Path) -> None:
    assert skep("key", "create", "admin", "--role", "admin", "--quiet", folder=tmp_path).returncode == 0
    file = tmp_path / "skep-data" / "skep.db"
    before = file.stat().st_size

    done = skep("store", "vacuum", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"bytes_before": before, "bytes_after": file.stat().st_size}
    assert len(json.loads(skep("key", "list", folder=tmp_path).stdout)) == 1
    said = skep("store", "vacuum", "--output", "table", folder=tmp_path)
    assert f"has {file.stat().st_size:,} bytes now; it had" in said.stdout


def test_a_file_that_a_server_has_is_left_alone(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as server:
        server.listening()
        inode = (tmp_path / "skep-data" / "skep.db").stat().st_ino

        refused = skep("store", "vacuum", folder=tmp_path)

        assert (tmp_path / "skep-data" / "skep.db").stat().st_ino == inode
    assert refused.returncode != 0
    assert "STORE_BUSY" in refused.stderr
    assert "stop the server first" in refused.stderr


def test_postgresql_is_not_an_sqlite_file(tmp_path: Path) -> None:
    refused = skep("store", "vacuum", "--store", "postgresql://nowhere/skep", folder=tmp_path)

    assert refused.returncode != 0
    assert "PostgreSQL gives room back by itself" in refused.stderr
