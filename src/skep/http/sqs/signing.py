"""Who calls the door: a request is signed by a key of Skep that was made for it. Without access control any credentials do.

First the signature is read, and its key and its time are checked: a stranger's body is not even taken. When the body is here, the signature
is checked, and then the rate of the key. A header that changes what the request means must be signed.
"""

from __future__ import annotations

import hashlib
import math

from skep.access.gate import Gate
from skep.access.principal import Principal
from skep.access.signature_v4 import (
    SKEW_SECONDS,
    RequestSignature,
    SignatureError,
    in_header,
    in_query,
    is_in_time,
    is_right,
)
from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.http.request.call import TENANT_HEADER, Call
from skep.http.request.prefix import prefix_of
from skep.http.sqs import faults
from skep.http.sqs.faults import SqsError
from skep.http.sqs.query_protocol import parameters

SERVICE = "sqs"
AUTHORIZATION, DATE, CONTENT_DIGEST = b"authorization", b"x-amz-date", b"x-amz-content-sha256"
NO_SUCH_KEY = "The security token included in the request is invalid: there is no such key that signs requests. Make one with: skep key create --aws"
WRONG = (
    "The request signature we calculated does not match the signature you provided. Check the secret access key, and that nothing on the way changes"
    " the request."
)


async def examine(gate: Gate, call: Call, now: Instant) -> tuple[RequestSignature, str]:
    """The signature of a request whose body is not here yet, and the secret that it must be made with."""
    try:
        signature = _signature(call)
        if signature is None:
            raise SqsError(
                faults.NO_CREDENTIALS, "Request is missing Authentication Token: it must be signed (Signature V4)."
            )
        if signature.service != SERVICE:
            raise SqsError(faults.WRONG_SIGNATURE, f"Credential should be scoped to correct service: '{SERVICE}'.")
        if not is_in_time(signature, now):
            raise SqsError(
                faults.EXPIRED, f"Signature expired: {signature.at} is more than {SKEW_SECONDS // 60} minutes from the time of this server,"
                " or the presigned URL is over.",
            )  # fmt: skip
        secret = await gate.secret_of(signature.access_key_id)
        if secret is None:
            raise SqsError(faults.UNKNOWN_KEY, NO_SUCH_KEY)
        _check_headers(call, signature)
    except SqsError as error:
        gate.refused(call.peer, error)
        raise
    return signature, secret


def _signature(call: Call) -> RequestSignature | None:
    """The signature in the header or in the query; None when there is none."""
    try:
        shown = call.single_header(AUTHORIZATION, Code.UNAUTHENTICATED)
        if shown is not None:
            at = call.single_header(DATE, Code.UNAUTHENTICATED)
            return in_header(shown.decode("latin-1"), None if at is None else at.decode("latin-1"))
        query = call.scope["query_string"]
        return in_query(parameters(query)) if b"X-Amz-Signature=" in query else None
    except (SignatureError, UnicodeDecodeError) as error:
        raise SqsError(faults.INCOMPLETE_SIGNATURE, f"The signature is incomplete: {error}.") from None
    except SqsError:
        raise
    except SkepError as error:
        raise SqsError(faults.INCOMPLETE_SIGNATURE, error.message) from None


def _check_headers(call: Call, signature: RequestSignature) -> None:
    """Check that all headers are signed that say what is asked for."""
    names = {name for name, _ in call.scope["headers"]}
    needed = {name.decode("latin-1") for name in names if name.startswith(b"x-amz-") or name == TENANT_HEADER} | {
        "host"
    }
    needed -= {"x-amzn-trace-id", "x-amz-user-agent", "x-amz-cf-id"}
    if missing := sorted(needed.difference(signature.headers)):
        raise SqsError(faults.WRONG_SIGNATURE, f"These headers must be signed: {', '.join(missing)}.")


def _paths(call: Call, path_prefix: str) -> list[str]:
    """The paths that the caller may have signed: that of the request, and before it what a proxy has removed."""
    path, prefix = call.scope["raw_path"].decode("latin-1"), prefix_of(call, path_prefix)
    if not prefix:
        return [path]
    return [prefix + path, path, *([prefix] if path == "/" else [])]


async def admit(
    gate: Gate, call: Call, signed: tuple[RequestSignature, str], body: bytes, path_prefix: str
) -> Principal:
    """The principal whose key signed this request."""
    signature, secret = signed
    told = call.header(CONTENT_DIGEST)
    # UNSIGNED-PAYLOAD and signatures of chunks are none of a whole body.
    is_whole = told is None or told.decode("latin-1") == hashlib.sha256(body).hexdigest()
    method, query = call.scope["method"], call.scope["query_string"].decode("latin-1")
    if not is_whole or not any(
        is_right(signature, secret, method, path, query, call.scope["headers"], body)
        for path in _paths(call, path_prefix)
    ):
        unsigned = "The payload must be signed: X-Amz-Content-Sha256 is not its digest."
        error = SqsError(faults.WRONG_SIGNATURE, WRONG if is_whole else unsigned)
        gate.refused(call.peer, error)
        raise error
    principal = await gate.signer(signature.access_key_id)
    if wait := gate.missing_seconds(principal):
        raise SkepError(
            Code.TOO_MANY_REQUESTS, "this key makes more requests than it may", retry_after_seconds=math.ceil(wait)
        )
    return principal
