"""Operations that the server accepted for later (202), and what became of them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Raw, Struct

from skep.client import calls
from skep.client.exchange import OK, Answer, Call, Request, path_part
from skep.client.pushed import Pushed
from skep.client.reading import reader
from skep.errors import Code, SkepError


class OperationStatus(StrEnum):
    """How far an operation is."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"


class Operation(Struct, rename="camel"):
    """An operation; ``result`` is what the call would have answered, once it is completed."""

    status: OperationStatus
    result: Raw = Raw()
    error_message: str | None = None
    code: str | None = None


_operation = reader(Operation)


def operation(operation_id: str) -> Call[Operation]:
    """How far an operation is."""
    return Call(Request("GET", f"/api/v1/operations/{path_part(operation_id)}"), _operation)


def outcome(found: Operation) -> Pushed | None:
    """What became of a queued push; None while it is not done. A failed one is raised."""
    match found.status:
        case OperationStatus.PENDING | OperationStatus.PROCESSING:
            return None
        case OperationStatus.COMPLETED:
            return calls.read_pushed(Answer(OK, bytes(found.result)))
        case OperationStatus.FAILED:
            try:
                code = Code(found.code or Code.INTERNAL)
            except ValueError:
                code = Code.INTERNAL
            raise SkepError(code, found.error_message or "the queued operation failed")
