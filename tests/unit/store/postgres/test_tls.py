"""`sslmode` in a store's URL: who is believed to be the database, and what happens to one that is not."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from skep.config import ServerSettings
from skep.errors import Code, SkepError
from skep.model import QueueKey, QueueSettings
from skep.server.compose import open_engine
from skep.server.doctor.examine import examine
from skep.server.doctor.postgres import postgres, transport
from tests.support.tls_front import Authority, tls_front


async def works(dsn: str) -> bool:
    """Whether a store can be used by way of this address; False when it says that it cannot be reached so."""
    try:
        async with open_engine(dsn) as engine:
            await engine.create_queue(QueueKey("q"), QueueSettings())
            await engine.delete_queue(QueueKey("q"))
    except SkepError as error:
        if error.code is not Code.STORE_UNAVAILABLE:
            raise
        return False
    return True


def asking(dsn: str, mode: str, authority: Authority) -> str:
    return f"{dsn}?sslmode={mode}&sslrootcert={quote(str(authority.file), safe='')}"


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "theirs")


async def test_verify_full_takes_a_server_whose_certificate_is_for_its_address(
    empty_tables_dsn: str, ours: Authority
) -> None:
    with tls_front(empty_tables_dsn, ours.server("127.0.0.1")) as front:
        assert await works(asking(front.dsn, "verify-full", ours))
        assert front.handshakes >= 2, "the pool's, and the one that hears of other servers"
        findings = (await postgres(asking(front.dsn, "verify-full", ours))).findings
        assert [one.state for one in findings if one.check == "postgresql"] == ["ok"]


async def test_doctor_asks_everything_over_one_connection(
    empty_tables_dsn: str, ours: Authority, tmp_path: Path
) -> None:
    with tls_front(empty_tables_dsn, ours.server("127.0.0.1")) as front:
        settings = ServerSettings(store=asking(front.dsn, "verify-full", ours), data_folder=str(tmp_path))
        findings = await examine(settings)

        assert [one.state for one in findings if one.check == "postgresql"] == ["ok"]
        assert front.handshakes == 1


async def test_verify_full_refuses_another_name_another_authority_and_no_tls(
    empty_tables_dsn: str, ours: Authority, theirs: Authority
) -> None:
    for context in (ours.server("db.example"), theirs.server("127.0.0.1"), None):
        with tls_front(empty_tables_dsn, context) as front:
            asked = asking(front.dsn, "verify-full", ours)
            assert not await works(asked)
            [finding] = [one for one in (await postgres(asked)).findings if one.check == "postgresql"]
            assert finding.state == "fail"


async def test_verify_ca_takes_another_name_but_no_other_authority(
    empty_tables_dsn: str, ours: Authority, theirs: Authority
) -> None:
    with tls_front(empty_tables_dsn, ours.server("db.example")) as front:
        assert await works(asking(front.dsn, "verify-ca", ours))
        assert not await works(asking(front.dsn, "verify-ca", theirs))


async def test_require_wants_tls_of_anyone_and_prefer_goes_without(empty_tables_dsn: str, theirs: Authority) -> None:
    with tls_front(empty_tables_dsn, theirs.server("db.example")) as front:
        assert await works(f"{front.dsn}?sslmode=require")
        assert front.handshakes
    with tls_front(empty_tables_dsn, None) as front:
        assert not await works(f"{front.dsn}?sslmode=require")
        assert await works(f"{front.dsn}?sslmode=prefer")


@pytest.mark.parametrize(
    ("url", "state"),
    [
        ("postgresql://skep@db.example/skep", "warn"),
        ("postgresql://skep@db.example/skep?sslmode=require", "warn"),
        ("postgresql://skep@db.example/skep?sslmode=verify-ca", "warn"),
        ("postgresql://skep@db.example/skep?sslmode=verify-full", "ok"),
        ("postgresql://skep@10.0.0.7:5432/skep", "warn"),
        ("postgresql://skep@127.0.0.1:5432/skep", "ok"),
        ("postgresql://skep@localhost/skep", "ok"),
        ("postgresql://skep@/skep?host=%2Fvar%2Frun%2Fpostgresql", "ok"),
        ("postgresql://skep@/skep?host=db.example", "warn"),
    ],
)
def test_doctor_tells_where_the_way_to_the_database_is_not_checked(url: str, state: str) -> None:
    assert transport(url, {}).state == state


def test_doctor_takes_the_mode_of_the_environment_too() -> None:
    url = "postgresql://skep@db.example/skep"
    assert transport(url, {"PGSSLMODE": "verify-full"}).state == "ok"
    assert transport(f"{url}?sslmode=require", {"PGSSLMODE": "verify-full"}).state == "warn"
