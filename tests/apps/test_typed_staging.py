"""Typed queues hold for staged messages as for any push, and when they are staged."""

import pyarrow as pa
import pytest

from skep.engine import Engine
from skep.engine.staging import StagedAt
from skep.errors import Code, SkepError
from skep.model import NewMessage
from skep.model.staging import Attempt, EpochKey
from skep.server.compose import Opened
from tests.apps.driver import ORDERS, SHOP, apply_text

GOOD = b'{"order":"o-1","customer":"c-1","cents":1250}'
EPOCH = EpochKey("query", 1)


@pytest.fixture
async def engine(opened: Opened) -> Engine:
    await apply_text(opened, SHOP)
    return opened.engine


async def test_what_does_not_fit_is_refused_when_it_is_staged(engine: Engine) -> None:
    with pytest.raises(SkepError) as refused:
        await engine.staging.stage_messages(StagedAt(EPOCH, 0, 0), [NewMessage(ORDERS, b'{"order":1}')])
    assert refused.value.code is Code.MESSAGE_INVALID

    with pytest.raises(SkepError) as columns:
        await engine.staging.stage_columns(
            StagedAt(EPOCH, 0, 0), ORDERS, pa.record_batch({"payload": [b'{"order":1}']})
        )
    assert columns.value.code in (Code.MESSAGE_INVALID, Code.INVALID_REQUEST)
    assert (await engine.staging.epoch(EPOCH)).attempts == []


async def test_keys_that_the_spec_derives_make_repeats_duplicates(engine: Engine) -> None:
    message = NewMessage(ORDERS, GOOD)
    await engine.staging.stage_messages(StagedAt(EPOCH, 0, 0), [message, message])

    await engine.staging.publish(EPOCH, [Attempt(0, 0, 2)])

    assert (await engine.browse.queue_stats(ORDERS)).last_seq == 1
