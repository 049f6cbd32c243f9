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
from skep.http.request.statuses import error_answer
from skep.model import QUEUE_MODE_GROUP
from skep.observe.metrics import Meter


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
    """The answer with an error. Where ours is a 422, Queen's is a 400."""
    answer = error_answer(error)
    status = HTTPStatus.BAD_REQUEST if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY else answer.status
    told = json_answer(QueenProblem(error.sentence, error.code), status)
    told.headers = answer.headers
    return told


def group_of(name: str | None) -> str:
    """The consumer group that a request names; the queue's own when it names none."""
    return name or QUEUE_MODE_GROUP
