"""`skep key create --aws`: the printed key signs requests of a server on that store."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.testing.server import running_server
from tests.sqs.driver import client
from tests.support.process import run_skep


@pytest.mark.slow
def test_the_printed_key_signs(tmp_path: Path) -> None:
    line = new_master_line("first")
    (tmp_path / "master").write_text(line)
    (tmp_path / "master").chmod(0o600)
    store = str(tmp_path / "skep.db")
    environ = {**os.environ, "SKEP_STORE": store, "SKEP_ENCRYPTION_MASTER_KEYS": f"file:{tmp_path / 'master'}"}
    shown = run_skep(
        "key", "create", "celery", "--role", "admin", "--aws", timeout=60, env=environ, cwd=tmp_path, text=True
    )
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)["aws"]
    key, secret = told["accessKeyId"], told["secretAccessKey"]
    with running_server(store, access=AccessSettings(required=True), masters=MasterKeys(line)) as server:
        assert client(server.url, None, key, secret).create_queue(QueueName="q")
    with (
        running_server(
            store, access=AccessSettings(required=True), masters=MasterKeys(new_master_line("other"))
        ) as server,
        pytest.raises(ClientError) as refused,
    ):
        client(server.url, None, key, secret).list_queues()
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503


def test_without_a_master_key_there_is_no_such_key(tmp_path: Path) -> None:
    environ = {**os.environ, "SKEP_STORE": str(tmp_path / "skep.db")}
    made = run_skep("key", "create", "--role", "admin", "--aws", timeout=60, env=environ, cwd=tmp_path, text=True)
    assert made.returncode != 0
    assert "encryption.master_keys" in made.stderr
