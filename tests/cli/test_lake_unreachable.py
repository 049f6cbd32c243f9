"""A lake whose object store, or whose catalog, is not there: every command says so soon, with the exit code 2."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.cli.app import run
from skep.errors import Code, SkepError
from skep.spark.lake import place, reaching
from skep.spark.lake.reaching import check_reached

LAKE = "s3://bucket/lake"
COMMANDS = {
    "archive": ["pipeline", "run", "archive"],
    "archive of Delta": ["pipeline", "run", "archive", "--format", "delta"],
    "archive of Iceberg": ["pipeline", "run", "archive", "--format", "iceberg", "--catalog", "prod"],
    "forget": ["lake", "forget", "--partition", "p", "--yes"],
    "show": ["lake", "show"],
    "show of Iceberg": ["lake", "show", "--catalog", "prod"],
    "vacuum": ["lake", "vacuum"],
}


@pytest.fixture
def closed() -> Iterator[str]:
    """The address of nobody."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaching, "REACH_SECONDS", 0.3)
    monkeypatch.setattr(reaching, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(reaching, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr(place, "_reached", set())


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_a_closed_port_is_told(
    command: list[str], closed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{closed}")
    assert run([*command, "--lake", LAKE]) == 2
    said = capsys.readouterr().err
    assert "LAKE_UNREACHABLE" in said
    told = f"s3://bucket cannot be reached at http://{closed}: Connection refused. Look at the name of the bucket"
    assert told in " ".join(said.split())
    assert "report:" not in said


@pytest.mark.parametrize("url", [f"http://{'x' * 64}.example", "http://127.0.0.1:99999", "http://", "https://{closed}"])
def test_an_address_that_leads_nowhere_is_told(url: str, closed: str) -> None:
    with pytest.raises(SkepError, match="the lake cannot be reached at") as caught:
        check_reached(url.format(closed=closed), "the lake", "Look.")
    assert caught.value.code is Code.LAKE_UNREACHABLE


def test_tls_where_nobody_speaks_it_is_told_and_without_it_the_store_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        address = f"127.0.0.1:{plain.getsockname()[1]}"
        check_reached(f"http://{address}", "the lake", "")
        with pytest.raises(SkepError, match="cannot be reached"):
            check_reached(f"https://{address}", "the lake", "")


def test_a_store_that_starts_a_moment_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        paused = threading.Event()

        def start(_: float) -> None:
            paused.set()
            bound.listen()

        monkeypatch.setattr("skep.spark.lake.reaching.time.sleep", start)
        check_reached(f"http://127.0.0.1:{bound.getsockname()[1]}", "the lake", "")
        assert paused.is_set()


@pytest.mark.parametrize(
    ("region", "url"),
    [("eu-central-1", "https://s3.eu-central-1.amazonaws.com"), ("us-gov-west-1", "https://s3.us-gov-west-1.amazonaws.com"),
     ("cn-north-1", None), ("us-iso-east-1", None), ("", None)],
)  # fmt: skip
def test_the_host_of_amazon_is_asked_where_it_is_known(
    region: str, url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", region)
    asked: list[str] = []
    monkeypatch.setattr(place, "check_reached", lambda url, *_: asked.append(url))
    place.Place(LAKE).check_reached()
    assert asked == ([] if url is None else [url])


def test_a_catalog_that_is_not_there_is_told(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = pytest.importorskip("pyiceberg.catalog")
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__AWAY__URI", f"http://{closed}")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    assert run(["lake", "show", "--lake", str(tmp_path), "--catalog", "away"]) == 2
    assert "LAKE_UNREACHABLE: The catalog of the lake" in " ".join(capsys.readouterr().err.split())
