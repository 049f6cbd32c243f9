"""The room that answers share: who gets it when it is scarce, and that whoever goes leaves it to the next."""

from __future__ import annotations

import asyncio

from skep.engine.answers import Answers, Room
from tests.engine.driver import until

WHOLE = 256_000
SMALL = 1_000


async def waiting(answers: Answers, size: int) -> tuple[Room, asyncio.Task[None]]:
    """An answer that waits in line."""
    room, before = answers.room(), len(answers.line)
    task = asyncio.ensure_future(room.take(size, seconds=60))
    await until(lambda: len(answers.line) > before)
    return room, task


def test_a_part_of_the_room_is_for_small_answers() -> None:
    answers = Answers(WHOLE)
    assert answers.room().try_take(answers.largest)

    assert not answers.room().try_take(SMALL + 1)
    assert answers.room().try_take(SMALL)


async def test_a_large_answer_waits_until_it_fits_below_the_part_for_small_ones() -> None:
    answers = Answers(WHOLE)
    first = answers.room()
    assert first.try_take(answers.largest)
    room, task = await waiting(answers, 2 * SMALL)
    first.shrink(SMALL)
    assert not task.done()
    first.shrink(SMALL)
    await until(task.done)

    assert (room.held_bytes, answers.held_bytes) == (2 * SMALL, answers.largest)


async def test_the_room_of_one_who_went_in_its_very_turn_goes_to_the_next() -> None:
    answers = Answers(WHOLE)
    first = answers.room()
    assert first.try_take(WHOLE)
    gone_room, gone = await waiting(answers, answers.largest)
    next_room, task = await waiting(answers, answers.largest)
    first.let_go()  # `gone` was given the room, and did not hear it yet
    gone.cancel()
    async with asyncio.timeout(10):
        await task

    assert gone.cancelled()
    assert (gone_room.held_bytes, next_room.held_bytes) == (0, answers.largest)
    assert answers.held_bytes == answers.largest
