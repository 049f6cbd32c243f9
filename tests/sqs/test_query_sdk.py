"""A published SDK that speaks the query protocol: the last botocore that did, in an interpreter of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.testing.server import running_server
from tests.sqs.driver import signing_credentials
from tests.sqs.test_proxy import proxied

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "query"
INSTALL_SECONDS, RUN_SECONDS = 300, 120

SEEN = {
    "protocol": "query", "found": True, "body": True, "trace": "Root=1-2", "foo": {"foo.one": "7", "foo.raw": [0, 255]}, "same": True,
    "digests": True, "batch": [9, [["late", True, "InvalidParameterValue"]]], "batches": [9, 9], "empty": None, "attributes": ["77", "0"],
    "changed": {"DelaySeconds": "3"}, "tags": {"e": "<f>"}, "policy": ["SQS:SendMessage", "SQS:*"], "sequence": True,
    "groups": [["1", {"MessageGroupId": "g"}], ["2", {"MessageGroupId": "g"}]], "sources": [["source-0", "source-1"], ["source-2"]],
    "pages": [["source-0"], ["source-1"], ["source-2"]], "task": True, "moves": [True, 5, True], "purged": None, "left": None,
    "codes": {
        "missing": ["QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400],
        "handle": ["ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400],
        "other": ["QueueNameExists", "QueueAlreadyExists", 400],
        "empty": ["EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", 400],
        "twice": ["BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400],
        "contents": ["InvalidMessageContents", "InvalidMessageContents", 400],
        "task": ["ClientError", "InvalidParameterValue", 400],
    },
}  # fmt: skip


@pytest.fixture(scope="session")
def packages() -> Path:
    """The folder of the SDK, installed once for each lock."""
    lock = HERE / "requirements.lock"
    folder = Path(sys.prefix) / "query-sdk" / hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    if not (folder / "installed").exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--require-hashes",
            "--no-deps",
        ]
        run = subprocess.run(
            [*command, "--target", str(folder), "--requirement", str(lock)], capture_output=True, text=True,
            timeout=INSTALL_SECONDS, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        (folder / "installed").touch()
    return folder


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return ":memory:" if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


@pytest.fixture(params=["any", "signed", "signed behind a proxy"])
def endpoint(request: pytest.FixtureRequest, store: str) -> Iterator[list[str]]:
    """A URL, and the credentials for it."""
    if request.param == "any":
        with running_server(store) as server:
            yield [server.url, "any", "any"]
        return
    masters = MasterKeys(new_master_line("first"))
    with running_server(store, access=AccessSettings(required=True), masters=masters) as server:
        credentials = signing_credentials(server)
        if request.param == "signed":
            yield [server.url, *credentials]
        else:
            with proxied(server.port, says_prefix=True) as proxy:
                yield [proxy.url, *credentials]


def test_every_action_by_the_query_protocol(packages: Path, endpoint: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, str(HERE / "program.py"), *endpoint], env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True, text=True, timeout=RUN_SECONDS, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    seen: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert seen == SEEN
