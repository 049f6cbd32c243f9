"""The HTTP status of each error code, and the one shape of error answers."""

from __future__ import annotations

from http import HTTPStatus

from skep.errors import Code, SkepError
from skep.http.request.call import Answer, json_answer
from skep.wire.problems import ErrorResponse, Problem

STATUS: dict[Code, HTTPStatus] = {
    Code.MALFORMED: HTTPStatus.BAD_REQUEST,
    Code.SIGNATURE_MALFORMED: HTTPStatus.BAD_REQUEST,
    Code.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Code.SIGNATURE_INVALID: HTTPStatus.UNAUTHORIZED,
    Code.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Code.HOST_UNKNOWN: HTTPStatus.MISDIRECTED_REQUEST,
    Code.QUEUE_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.GROUP_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.MESSAGE_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.ENTITY_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.APP_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.PIPELINE_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.WEBHOOK_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.OPERATION_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.KEY_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.ROUTE_NOT_FOUND: HTTPStatus.NOT_FOUND,
    Code.METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
    Code.REQUEST_TIMEOUT: HTTPStatus.REQUEST_TIMEOUT,
    Code.QUEUE_EXISTS: HTTPStatus.CONFLICT,
    Code.LAST_ADMIN_KEY: HTTPStatus.CONFLICT,
    Code.QUEUE_PAUSED: HTTPStatus.CONFLICT,
    Code.EPOCH_PUBLISHED: HTTPStatus.CONFLICT,
    Code.STAGING_INCOMPLETE: HTTPStatus.CONFLICT,
    Code.GROUP_EXTERNAL: HTTPStatus.CONFLICT,
    Code.GROUP_NOT_EXTERNAL: HTTPStatus.CONFLICT,
    Code.MESSAGE_SETTLED: HTTPStatus.CONFLICT,
    Code.LOG_REPLACED: HTTPStatus.CONFLICT,
    Code.STALE_LEASE: HTTPStatus.CONFLICT,
    Code.NOT_IN_LEASE: HTTPStatus.CONFLICT,
    Code.ENTITY_CHANGED: HTTPStatus.CONFLICT,
    Code.RECEIPT_EXISTS: HTTPStatus.CONFLICT,
    Code.DEAD_LETTER_QUEUE_IN_USE: HTTPStatus.CONFLICT,
    Code.OPERATION_NOT_PENDING: HTTPStatus.CONFLICT,
    Code.PAYLOAD_TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Code.UNSUPPORTED_MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    Code.QUEUE_FULL: HTTPStatus.TOO_MANY_REQUESTS,
    Code.OPERATIONS_AHEAD: HTTPStatus.TOO_MANY_REQUESTS,
    Code.TOO_MANY_REQUESTS: HTTPStatus.TOO_MANY_REQUESTS,
    Code.OVERLOADED: HTTPStatus.TOO_MANY_REQUESTS,
    Code.ADDRESS_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.STORE_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.STORE_BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.STORE_FULL: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.COMMAND_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.SERVER_BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.WEBHOOK_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.STOPPING: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.KEY_UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Code.CANNOT_DECRYPT: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.STORE_CORRUPT: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.COMMAND_FAILED: HTTPStatus.INTERNAL_SERVER_ERROR,
    Code.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""Codes that are missing here are 422: the request is understood, but cannot be done as asked."""

RETRY_AFTER_SECONDS = 1
_RETRY_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


def status_of(code: Code) -> HTTPStatus:
    """The status of an error."""
    return STATUS.get(code, HTTPStatus.UNPROCESSABLE_ENTITY)


def seen_from_outside(error: SkepError) -> SkepError:
    """The error as a client sees it: STORE_BUSY of a full engine becomes a 429, since the store is not at fault."""
    if error.code is Code.STORE_BUSY and error.details:
        return SkepError(Code.TOO_MANY_REQUESTS, error.message, **error.details)
    return error


def is_failure(code: Code) -> bool:
    """Whether this error is worth an alarm: the call failed here or was refused for now, and the caller made no mistake."""
    status = status_of(code)
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def error_answer(error: SkepError) -> Answer:
    """The answer with an error."""
    error = seen_from_outside(error)
    status = status_of(error.code)
    details = {name: value for name, value in error.details.items() if value is not None}
    answer = json_answer(ErrorResponse(Problem(error.code, error.sentence, details)), status)
    if error.code is Code.UNAUTHENTICATED:
        answer.headers.append((b"www-authenticate", b'Bearer realm="skep"'))
    if status in _RETRY_LATER:
        wait = details.get("retry_after_seconds")
        answer.headers.append((b"retry-after", b"%d" % (wait if isinstance(wait, int) else RETRY_AFTER_SECONDS)))
    return answer
