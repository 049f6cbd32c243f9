"""`skep pipeline run` exits as the documentation says, before Spark is started."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from skep.cli.app import run
from skep.config import AccessSettings
from skep.errors import Code
from skep.spark.running.record import Run
from skep.testing.postgres import free_port
from skep.testing.server import running_server


def written(lake: Path) -> Run:
    [file] = lake.glob("runs/*/run.json")
    return msgspec.json.decode(file.read_bytes(), type=Run)


def test_a_run_without_a_token_exits_with_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SKEP_TOKEN", raising=False)
    with running_server(access=AccessSettings(required=True)) as server:
        assert run(["pipeline", "run", "archive", "--url", server.url, "--lake", str(tmp_path)]) == 3
    assert (written(tmp_path).error_code, written(tmp_path).status) == (Code.UNAUTHENTICATED, "failed")


def test_a_run_without_a_server_exits_with_2(tmp_path: Path) -> None:
    to = ["--url", f"http://127.0.0.1:{free_port()}", "--lake", str(tmp_path)]
    assert run(["pipeline", "run", "archive", *to]) == 2
    assert written(tmp_path).error_code is Code.SERVER_UNREACHABLE
