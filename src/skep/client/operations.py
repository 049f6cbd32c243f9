"""Operations: calls that the server queued (202), and their outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TypeVar

from msgspec import Raw, Struct

from skep.client import calls
from skep.client.calls import Acked
from skep.client.exchange import OK, ApiCall, ApiResponse, path_part
from skep.client.method import get
from skep.client.pushed import Pushed, Queued
from skep.errors import Code, SkepError
from skep.model.operation import LIVE, OperationStatus

T = TypeVar("T")


class Operation(Struct, rename="camel"):
    """An operation; ``result`` is what the call would have answered, once it is completed."""

    status: OperationStatus
    result: Raw = Raw()
    error_message: str | None = None
    code: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the operation has ended, with or without success."""
        return self.status not in LIVE


def operation(operation_id: str) -> ApiCall[Operation]:
    """The state of an operation."""
    return get(f"/api/v1/operations/{path_part(operation_id)}", Operation)


def pushed(queued: Queued, ended: Sequence[Operation]) -> Pushed:
    """The outcome of a queued push whose operations have all ended. A failed operation is raised."""
    parts = [calls.read_pushed(_answer(one)) for one in ended]
    queues = {name: depth for part in parts for name, depth in part.queues.items()}
    return Pushed(_merged(queued, [part.messages for part in parts]), queues)


def acked(queued: Queued, ended: Sequence[Operation]) -> Acked:
    """The outcome of queued acks whose operations have all ended. A failed operation is raised."""
    return Acked(_merged(queued, [calls.read_acks(_answer(one)).results for one in ended]))


def _answer(found: Operation) -> ApiResponse:
    match found.status:
        case OperationStatus.COMPLETED:
            return ApiResponse(OK, bytes(found.result))
        case OperationStatus.CANCELLED:
            raise SkepError(Code.OPERATION_NOT_PENDING, "the queued operation was cancelled")
        case _:
            try:
                code = Code(found.code or Code.INTERNAL)
            except ValueError:
                code = Code.INTERNAL
            raise SkepError(code, found.error_message or "the queued operation failed")


def _merged(queued: Queued, parts: Sequence[list[T]]) -> list[T]:
    """The results of all operations in the order of the call's items."""
    placed: list[tuple[int, T]] = []
    for part, results in zip(queued.parts, parts, strict=True):
        items = part.items or list(range(len(results)))
        placed += zip(items, results, strict=False)
    return [result for _, result in sorted(placed, key=itemgetter(0))]
