"""The composition root: which URL means which store, and that closing keeps what was pushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.engine import Engine
from skep.errors import SkepError
from skep.model import PopRequest
from skep.server.compose import open_engine
from tests.engine.driver import ORDERS, message


async def pushed_and_popped(engine: Engine) -> list[bytes]:
    await engine.push([message("1")])
    return [delivery.payload for delivery in (await engine.pop(PopRequest(ORDERS))).deliveries]


async def test_an_engine_in_memory() -> None:
    async with open_engine(":memory:") as engine:
        assert await pushed_and_popped(engine) == [b"1"]
    with pytest.raises(SkepError, match="STOPPING"):
        await engine.push([message("1")])


@pytest.mark.parametrize("scheme", ["sqlite:///", ""])
async def test_I1_a_file_keeps_what_was_pushed(tmp_path: Path, scheme: str) -> None:
    url = f"{scheme}{tmp_path / 'skep.db'}"
    async with open_engine(url) as engine:
        await engine.push([message("1")])
    async with open_engine(url) as engine:
        assert [delivery.payload for delivery in (await engine.pop(PopRequest(ORDERS))).deliveries] == [b"1"]


async def test_postgres_is_shared(empty_tables_dsn: str) -> None:
    async with open_engine(empty_tables_dsn) as engine:
        assert engine.settings.shared
        assert await pushed_and_popped(engine) == [b"1"]


@pytest.mark.parametrize("url", ["", "sqlite:///", "mysql://localhost/skep"])
async def test_a_url_that_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(SkepError, match="INVALID_REQUEST"):
        async with open_engine(url):
            pass
