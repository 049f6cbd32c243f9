"""The errors of SQS: their names, codes and states, and which of them an error of Skep becomes."""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct

from skep.errors import Code, SkepError
from skep.http.request.statuses import status_of


class Fault(Struct, frozen=True):
    """A kind of error: its name in the JSON protocol, its code in the query protocol, and its state."""

    name: str
    code: str
    status: int = HTTPStatus.BAD_REQUEST

    @property
    def is_senders(self) -> bool:
        """Whether the caller is at fault."""
        return self.status < HTTPStatus.INTERNAL_SERVER_ERROR


def _fault(name: str, code: str | None = None, status: int = HTTPStatus.BAD_REQUEST) -> Fault:
    return Fault(name, name if code is None else code, status)


_SERVICE = "AWS.SimpleQueueService."

QUEUE_DOES_NOT_EXIST = _fault("QueueDoesNotExist", _SERVICE + "NonExistentQueue")
QUEUE_NAME_EXISTS = _fault("QueueNameExists", "QueueAlreadyExists")
EMPTY_BATCH = _fault("EmptyBatchRequest", _SERVICE + "EmptyBatchRequest")
TOO_MANY_ENTRIES = _fault("TooManyEntriesInBatchRequest", _SERVICE + "TooManyEntriesInBatchRequest")
IDS_NOT_DISTINCT = _fault("BatchEntryIdsNotDistinct", _SERVICE + "BatchEntryIdsNotDistinct")
INVALID_ENTRY_ID = _fault("InvalidBatchEntryId", _SERVICE + "InvalidBatchEntryId")
BATCH_TOO_LONG = _fault("BatchRequestTooLong", _SERVICE + "BatchRequestTooLong")
MESSAGE_NOT_IN_FLIGHT = _fault("MessageNotInflight", _SERVICE + "MessageNotInflight")
UNSUPPORTED = _fault("UnsupportedOperation", _SERVICE + "UnsupportedOperation")
HANDLE_INVALID = _fault("ReceiptHandleIsInvalid")
INVALID_ATTRIBUTE_NAME = _fault("InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE = _fault("InvalidAttributeValue")
INVALID_CONTENTS = _fault("InvalidMessageContents")
OVER_LIMIT = _fault("OverLimit", status=HTTPStatus.FORBIDDEN)
NOT_FOUND = _fault("ResourceNotFoundException")
THROTTLED = _fault("RequestThrottled", status=HTTPStatus.FORBIDDEN)
INVALID_VALUE = _fault("InvalidParameterValue")
MISSING_PARAMETER = _fault("MissingParameter")
INVALID_ACTION = _fault("InvalidAction")
MALFORMED = _fault("SerializationException")
MALFORMED_QUERY = _fault("MalformedQueryString", status=HTTPStatus.NOT_FOUND)
TOO_LARGE = _fault("RequestTooLarge", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

NO_CREDENTIALS = _fault("MissingAuthenticationToken", status=HTTPStatus.FORBIDDEN)
UNKNOWN_KEY = _fault("InvalidClientTokenId", status=HTTPStatus.FORBIDDEN)
WRONG_SIGNATURE = _fault("SignatureDoesNotMatch", status=HTTPStatus.FORBIDDEN)
INCOMPLETE_SIGNATURE = _fault("IncompleteSignature")
EXPIRED = _fault("RequestExpired")
ACCESS_DENIED = _fault("AccessDenied", status=HTTPStatus.FORBIDDEN)

UNAVAILABLE = _fault("ServiceUnavailable", status=HTTPStatus.SERVICE_UNAVAILABLE)
FAILURE = _fault("InternalFailure", status=HTTPStatus.INTERNAL_SERVER_ERROR)

_FAULTS = {
    Code.QUEUE_NOT_FOUND: QUEUE_DOES_NOT_EXIST,
    Code.QUEUE_EXISTS: QUEUE_NAME_EXISTS,
    Code.MALFORMED: MALFORMED,
    Code.PAYLOAD_TOO_LARGE: TOO_LARGE,
    Code.QUEUE_FULL: OVER_LIMIT,
    Code.TOO_MANY_REQUESTS: THROTTLED,
    Code.OVERLOADED: THROTTLED,
    Code.OPERATIONS_AHEAD: THROTTLED,
    Code.UNAUTHENTICATED: UNKNOWN_KEY,
    Code.FORBIDDEN: ACCESS_DENIED,
    Code.DEAD_LETTER_QUEUE_IN_USE: UNSUPPORTED,
    Code.GROUP_EXTERNAL: UNSUPPORTED,
    Code.STALE_LEASE: HANDLE_INVALID,
    Code.NOT_IN_LEASE: HANDLE_INVALID,
}


class SqsError(SkepError):
    """An error that SQS has a name for."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(_CODES.get(fault.name, Code.INVALID_REQUEST), message)
        self.fault = fault


_CODES = {
    QUEUE_DOES_NOT_EXIST.name: Code.QUEUE_NOT_FOUND,
    QUEUE_NAME_EXISTS.name: Code.QUEUE_EXISTS,
    NO_CREDENTIALS.name: Code.UNAUTHENTICATED,
    UNKNOWN_KEY.name: Code.UNAUTHENTICATED,
    WRONG_SIGNATURE.name: Code.UNAUTHENTICATED,
    INCOMPLETE_SIGNATURE.name: Code.UNAUTHENTICATED,
    EXPIRED.name: Code.UNAUTHENTICATED,
}


def fault_of(error: SkepError) -> Fault:
    """What SQS calls an error."""
    if isinstance(error, SqsError):
        return error.fault
    known = _FAULTS.get(error.code)
    if known is not None:
        return known
    status = status_of(error.code)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        return UNAVAILABLE
    return FAILURE if status >= HTTPStatus.INTERNAL_SERVER_ERROR else INVALID_VALUE


def invalid(parameter: str, value: object, reason: str) -> SqsError:
    """The error of a parameter with a value that it may not have."""
    return SqsError(INVALID_VALUE, f"Value {str(value)[:200]} for parameter {parameter} is invalid. Reason: {reason}")


def missing(parameter: str) -> SqsError:
    """The error of a parameter that must be there and is not."""
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {parameter}.")
