"""The JSON protocol: the action in the header X-Amz-Target, the request and the result as JSON."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from skep.errors import SkepError
from skep.http.request.call import Answer
from skep.http.sqs.actions import ACTIONS, DECODERS, SqsAction
from skep.http.sqs.faults import INVALID_ACTION, MALFORMED, Fault, SqsError
from skep.strict_json import why_no_json

MEDIA_TYPE = b"application/x-amz-json-1.0"
TARGET = b"x-amz-target"
PREFIX = "AmazonSQS."
_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def action_of(target: bytes) -> SqsAction:
    """The action that the header names."""
    name = target.decode("latin-1")
    action = ACTIONS.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    if action is None:
        raise SqsError(INVALID_ACTION, f"The action {name[:100]} is not valid for this endpoint.")
    return action


def read(action: SqsAction, body: bytes) -> Struct:
    """The request in a body."""
    decode = DECODERS[action.name].decode
    try:
        try:
            request: Struct = decode(body or b"{}")
        except msgspec.ValidationError:
            if b"null" not in body:
                raise
            request = decode(_without_nulls(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SqsError(MALFORMED, f"The request cannot be read: {why_no_json(error)}") from None
    return request


def _without_nulls(body: bytes) -> bytes:
    """A request without its members that are null: these are not there, as in SQS."""
    return _encode({name: value for name, value in _members(body).items() if bytes(value) != b"null"})


def answer(result: Struct, request_id: str) -> Answer:
    """The answer with a result."""
    body = _encode(result)
    return Answer(
        200, b"" if body == b"{}" and not result.__struct_fields__ else body, MEDIA_TYPE, _headers(request_id)
    )


def refusal(error: SkepError, fault: Fault, request_id: str) -> Answer:
    """The answer with an error. The header has the code of the query protocol, which SDKs show where code was written for it."""
    body = _encode({"__type": f"com.amazonaws.sqs#{fault.name}", "message": error.message})
    who = "Sender" if fault.is_senders else "Receiver"
    headers = [*_headers(request_id), (b"x-amzn-query-error", f"{fault.code};{who}".encode())]
    return Answer(fault.status, body, MEDIA_TYPE, headers)


def _headers(request_id: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-amzn-requestid", request_id.encode())]
