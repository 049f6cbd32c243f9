"""What all routes of the door share: the parts of the server, and how errors are told."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import NamedTuple

from msgspec import Struct

from skep.engine import Engine
from skep.engine.answers import Answers
from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.statuses import error_answer, seen_from_outside
from skep.model import QUEUE_MODE_GROUP
from skep.observe.metrics import Meter

BUSY = frozenset({Code.OVERLOADED, Code.OPERATIONS_AHEAD, Code.STORE_BUSY})
"""Refusals for now, by load. Queen's clients try again after a 503; a 429 ends their consumers."""


class QueenDoor(NamedTuple):
    """The parts of the server that the routes use."""

    engine: Engine
    meter: Meter
    answers: Answers
    ending: asyncio.Event
    """Set when the server ends, so that no pop waits for a queue any more."""


class QueenProblem(Struct):
    """An error as Queen's clients read it: a text. The code is ours."""

    error: str
    code: Code
    success: bool = False


def tell(error: SkepError, call: Call) -> Answer:  # noqa: ARG001 - it is the same for every call
    """The answer with an error."""
    return refuse(error)


def refuse(error: SkepError) -> Answer:
    """The answer with an error. Where ours is a 422, Queen's is a 400, and a 503 says that the server is busy."""
    seen = seen_from_outside(error)
    answer = error_answer(seen)
    status = answer.status
    if error.code in BUSY:
        status = HTTPStatus.SERVICE_UNAVAILABLE
    elif status == HTTPStatus.UNPROCESSABLE_ENTITY:
        status = HTTPStatus.BAD_REQUEST
    told = json_answer(QueenProblem(seen.sentence, seen.code), status)
    told.headers = answer.headers
    return told


def group_of(name: str | None) -> str:
    """The consumer group that a request names; the queue's own when it names none."""
    return name or QUEUE_MODE_GROUP
