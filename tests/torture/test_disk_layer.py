"""A bad disk below a running server: it refuses with a clear code, and has afterwards what it said it has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.client import AsyncClient
from skep.errors import Code, SkepError
from torture.layers import can_compile
from torture.site import Site

pytestmark = pytest.mark.skipif(not can_compile(), reason="layers need Linux and a C compiler")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with Site("sqlite", tmp_path, {"disk"}) as site:
        yield site


async def refusal(client: AsyncClient, payload: str) -> SkepError:
    with pytest.raises(SkepError) as refused:
        await client.push("orders", [payload])
    return refused.value


async def everything(client: AsyncClient) -> list[str]:
    """The payloads of the queue, in the order of its log."""
    return [json.loads(bytes(message.payload)) async for message in client.messages("orders")]


async def test_I1_a_server_on_a_bad_disk_refuses_clearly_and_keeps_what_it_answered(site: Site) -> None:
    async with AsyncClient(site.url, attempts=1) as client:
        await client.push("orders", ["first"])
        with site.disk.failing_syncs(1):
            failed = await refusal(client, "not synced")
        await client.push("orders", ["second"])

        assert failed.code is Code.STORE_UNAVAILABLE
        assert "check the disk" in failed.message
        assert await everything(client) == ["first", "second"]
