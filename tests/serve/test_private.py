"""What a server keeps on disk is for its owner alone, and no command prints a secret that it was given."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
from pathlib import Path

import apsw
import msgspec
import pytest

from skep.cli.connection import ServerOptions
from skep.config import EncryptionSettings, ServerSettings
from skep.config.load import without_keys, without_password
from skep.runtime.private_files import opened_to_others
from skep.server.compose import open_engine
from skep.spark.cached import write_program
from skep.spark.lake.opening import open_lake
from skep.spec import parse_app, to_json
from tests.serve.client import get
from tests.support.process import run_skep
from tests.support.serving import serving

KEY = "2026-01:c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="


def skep(*arguments: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return run_skep(*arguments, cwd=folder, env={**os.environ, **environ}, text=True, timeout=60)


def modes(*roots: Path) -> dict[str, int]:
    """The modes of all that lies there, the roots included."""
    found = [path for root in roots for path in (root, *root.rglob("*"))]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in found}


@pytest.fixture
def usual_umask() -> None:
    """As it is on most machines, so that what is made without a word can be read by all."""
    assert os.umask(0o022) == 0o022, "the tests themselves run with the usual one"


@pytest.mark.usefixtures("usual_umask")
def test_what_a_server_on_sqlite_makes_is_for_its_owner_alone(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as server:
        assert get(server.listening(), "/ready")[0] == 200
        assert modes(tmp_path / "skep-data") == {
            "skep-data": 0o700, "skep.db": 0o600, "skep.db-wal": 0o600, "skep.db-shm": 0o600, "skep.db.lock": 0o600,
            "skep.db.server": 0o600,
        }  # fmt: skip
        server.signal()
        server.ended()
    assert not [line for line in server.lines if "other accounts" in line]


@pytest.mark.usefixtures("usual_umask")
async def test_a_file_that_a_program_with_a_store_of_its_own_makes_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with open_engine(str(tmp_path / "own.db")):
        assert {mode for name, mode in modes(tmp_path).items() if name.startswith("own.db")} == {0o600}


@pytest.mark.usefixtures("usual_umask")
def test_the_spool_is_for_its_owner_alone(tmp_path: Path, postgres_dsn: str) -> None:
    with serving("--store", postgres_dsn, folder=tmp_path) as server:
        assert get(server.listening(), "/ready")[0] == 200
        found = modes(tmp_path / "skep-data")
    assert (found["skep-data"], found["spool"]) == (0o700, 0o700)
    assert {mode & 0o077 for mode in found.values()} == {0}


@pytest.mark.usefixtures("usual_umask")
def test_a_lake_and_what_is_kept_for_spark_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    with open_lake(str(tmp_path / "lake"), "default", "parquet"):
        assert modes(tmp_path / "lake")["lake"] == 0o700
    write_program(tmp_path / "cache" / "skep" / "java", "#!/bin/sh\n")
    assert (modes(tmp_path / "cache")["skep"], modes(tmp_path / "cache")["java"]) == (0o700, 0o700)


def test_what_others_can_read_is_told_at_the_start_and_by_doctor_and_left_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "skep-data"
    data.mkdir()
    data.chmod(0o755)
    apsw.Connection(str(data / "skep.db")).close()
    (data / "skep.db").touch()
    (data / "skep.db").chmod(0o644)

    with serving(folder=tmp_path) as server:
        told = [server.event("other accounts of this machine can get at the store") for _ in range(2)]
        server.listening()
    found = json.loads(skep("doctor", folder=tmp_path, SKEP_PORT="0").stdout)

    cures = ["chmod 700 skep-data", "chmod 600 skep-data/skep.db"]
    assert [event["cure"] for event in told] == cures
    assert [one["hint"] for one in found if one["check"] == "permissions"][:2] == cures
    assert modes(data)["skep-data"] == 0o755


def test_a_file_in_a_folder_that_nobody_else_can_enter_is_nobody_elses(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "folder" / "it's a file"
    folder.mkdir(mode=0o700)
    file.touch(mode=0o644)
    assert opened_to_others([folder, file, tmp_path / "none"]) == {}
    folder.chmod(0o711)
    file.chmod(0o640)
    assert opened_to_others([file]) == {file: f"chmod 600 '{folder}/it'\"'\"'s a file'"}


# secrets


@pytest.mark.parametrize("is_used", [True, False])
def test_a_settings_file_with_a_secret_that_others_can_read_is_told_by_doctor(tmp_path: Path, is_used: bool) -> None:
    tmp_path.chmod(0o755)
    settings = tmp_path / "skep.toml"
    settings.write_text('store = "postgresql://me:s3cret@127.0.0.1:1/db"\n')
    settings.chmod(0o644)
    environ = {} if is_used else {"SKEP_STORE": ":memory:"}

    def hints() -> list[str]:
        run = skep("doctor", folder=tmp_path, SKEP_PORT="0", **environ)
        return [one["hint"] for one in json.loads(run.stdout) if one["check"] == "permissions"]

    assert hints() == [f"chmod 600 {settings}"]
    settings.chmod(0o600)
    assert hints() == [""]
    settings.write_text("port = 6632\n")
    settings.chmod(0o644)
    assert f"chmod 600 {settings}" not in hints()


def test_a_settings_file_with_a_secret_that_others_can_read_is_told_at_the_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    settings = tmp_path / "skep.toml"
    settings.write_text(f'[encryption]\nmaster_keys = "{KEY}"\n')
    settings.chmod(0o644)

    run = skep("serve", folder=tmp_path, SKEP_PORT="0")

    assert f"chmod 600 {settings}" in run.stdout + run.stderr
    assert "c2VjcmV0" not in run.stdout + run.stderr


async def apply_app(store: str, document: bytes) -> None:
    async with open_engine(store) as engine:
        await engine.records.put_app("shop", document)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_files_of_secrets_that_others_can_read_are_told_at_the_start_and_by_doctor(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    tmp_path.chmod(0o755)
    store: str = str(tmp_path / "own.db") if kind == "sqlite" else request.getfixturevalue("postgres_dsn")
    spec = 'app shop { webhook orders { queue: orders, verify_github { secret_env: "SHOP_SECRET" } } queue orders {} }'
    asyncio.run(apply_app(store, to_json(parse_app(spec).app).encode()))
    files = [tmp_path / name for name in ("master.keys", "shop.secret")]
    for file in files:
        file.write_text("0123456789abcdef")
        file.chmod(0o640)
    environ = {
        "SKEP_STORE": store, "SHOP_SECRET_FILE": str(files[1]), "SKEP_ENCRYPTION_MASTER_KEYS": f"file:{files[0]}",
    }  # fmt: skip

    found = json.loads(skep("doctor", folder=tmp_path, SKEP_PORT="0", **environ).stdout)
    hints = [one["hint"] for one in found if one["check"] == "permissions"]
    assert hints == [f"chmod 600 {file}" for file in files]
    assert [one["state"] for one in found if one["check"] == "master keys"] == ["fail"]
    del environ["SKEP_ENCRYPTION_MASTER_KEYS"]  # a server does not start with such a file
    with serving(folder=tmp_path, environ=environ) as server:
        assert server.event("other accounts of this machine can get at a secret")["cure"] == hints[1]
        server.listening()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (KEY, "***"),
        (f"command:vault read -token={KEY}", "command:vault ***"),
        ("command:/etc/skep/keys.sh", "command:/etc/skep/keys.sh"),
        ("file:/etc/skep/master.keys", "file:/etc/skep/master.keys"),
        ("env:SKEP_MASTER", "env:SKEP_MASTER"),
        ("command:", "***"),
        ("", "***"),
    ],
)
def test_a_master_key_that_was_given_inline_is_not_shown(given: str, shown: str) -> None:
    assert without_keys(given) == shown


def test_config_show_has_no_secret_in_whatever_form_it_is_printed(tmp_path: Path) -> None:
    store = "postgresql://me:s3cret@127.0.0.1:1/none?sslpassword=s3cret&password=s3cret"
    environ = {"SKEP_ENCRYPTION_MASTER_KEYS": KEY, "SKEP_STORE": store}
    for form in ("json", "table"):
        run = skep("config", "show", "--output", form, folder=tmp_path, COLUMNS="400", **environ)
        assert run.returncode == 0
        assert "c2VjcmV0" not in run.stdout + run.stderr
        assert "s3cret" not in run.stdout + run.stderr
    for command in (("serve",), ("doctor",), ("key", "list"), ("access", "show")):
        run = skep(*command, folder=tmp_path, SKEP_PORT="0", **environ)
        assert "c2VjcmV0" not in run.stdout + run.stderr, command
        assert "s3cret" not in run.stdout + run.stderr, command


@pytest.mark.parametrize("command", ["serve", "doctor", "access show"])
def test_a_password_that_is_not_percent_encoded_is_not_printed(tmp_path: Path, command: str) -> None:
    run = skep(*command.split(), folder=tmp_path, SKEP_PORT="0", SKEP_STORE="postgresql://me:s3cret/x9@127.0.0.1:1/db")

    assert run.returncode != 0
    assert "%2F" in run.stdout + run.stderr
    assert "s3cret" not in run.stdout + run.stderr
    assert "x9" not in run.stdout + run.stderr


def test_passwords_of_every_kind_are_taken_out_of_a_url() -> None:
    url = "postgresql://me:a@b@host/db?sslmode=require&sslpassword=c&PASSWORD=d&x=e"
    assert without_password(url) == "postgresql://me:***@host/db?sslmode=require&sslpassword=***&PASSWORD=***&x=e"


def test_settings_that_are_printed_whole_have_no_secret() -> None:
    encryption = EncryptionSettings(master_keys=KEY)
    told = repr(ServerSettings(store="postgresql://me:s3cret@host/db", encryption=encryption))
    assert "s3cret" not in told
    assert KEY not in told
    assert KEY not in repr(encryption)
    assert "data_folder='skep-data'" in told
    assert "skep_x" not in repr(ServerOptions(token="skep_x"))
    # What a worker process is told goes to it whole.
    again = msgspec.json.decode(msgspec.json.encode(encryption), type=EncryptionSettings)
    assert again.master_keys == KEY
