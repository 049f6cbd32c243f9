"""A request to a webhook: its tenant, its deduplication key, and the variables of its expressions."""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct

from skep.clock import Instant
from skep.engine.validate import NAME_CHARACTERS, is_fit
from skep.entities.refusal import without_value
from skep.errors import Code, SkepError
from skep.model import DEFAULT_TENANT
from skep.spec import Expression, ExpressionError, evaluate_json
from skep.spec.ir import IdempotencySource, TenantSource
from skep.spec.kept_headers import HEADERS_BYTES_MAX, HEADERS_MAX, KeptHeaders
from skep.webhooks.compiled import CompiledWebhook
from skep.webhooks.signatures import Headers
from skep.wire.times import to_datetime
from skep.wire.traceparent import TRACEPARENT, TRACESTATE, TraceContext, context_of

Values = dict[str, object]


class HookRequest(Struct, frozen=True, gc=False):
    """A request as it came: names of headers in small letters, the body's own bytes. ``tenant`` is the path's, if any."""

    name: str
    tenant: str | None
    headers: Headers
    body: bytes
    source_ip: str


def check_place(webhook: CompiledWebhook, request: HookRequest) -> None:
    """WEBHOOK_NOT_FOUND when the path names a tenant and the spec does not have it there, or the other way round."""
    if (webhook.tenant is TenantSource.PATH) is not (request.tenant is not None):
        path = f"/hook/{webhook.name}" + ("/{tenant}" if webhook.tenant is TenantSource.PATH else "")
        raise SkepError(Code.WEBHOOK_NOT_FOUND, f"the webhook is at {path}")


def tenant_of(webhook: CompiledWebhook, request: HookRequest, payload: object) -> str:
    """The tenant of the message, from the one place that the spec names: the body, the path or a header."""
    if webhook.tenant_key is not None:
        return _evaluated(webhook.tenant_key, {"payload": payload}, f"the tenant of {webhook.name}")
    if request.tenant is not None:
        return request.tenant
    if webhook.tenant is TenantSource.HEADER:
        name = webhook.tenant_header
        try:
            return _needed(request.headers, name, "says whose message this is").decode()
        except UnicodeDecodeError:
            raise SkepError(Code.MALFORMED, f"the header {name.decode()} is not UTF-8") from None
    return DEFAULT_TENANT


def repeat_key(webhook: CompiledWebhook, request: HookRequest, values: Values) -> str | None:
    """The deduplication key; None when the webhook takes every request for a new one."""
    match webhook.repeats_by:
        case IdempotencySource.BODY:
            return body_key(request)
        case IdempotencySource.HEADER:
            there = {name for name, _ in request.headers}
            names = [name for name in webhook.idempotency_headers if name in there]
            key = _needed(request.headers, names[0] if names else webhook.idempotency_headers[0], "tells a repeat")
            return _fit(key.decode("latin-1"), Code.MALFORMED, "the idempotency key")
        case IdempotencySource.KEY:
            assert webhook.key is not None
            return _evaluated(webhook.key, values, f"the idempotency key of {webhook.name}")
        case IdempotencySource.NONE:
            return None


def body_key(request: HookRequest) -> str:
    """The hash of a body, which is the same for an exact repeat."""
    return sha256(request.body).hexdigest()


def values_of(webhook: CompiledWebhook, request: HookRequest, tenant: str, payload: object, now: Instant) -> Values:
    """The variables of the webhook's expressions."""
    return {
        "payload": payload,
        "headers": kept_headers(webhook.kept, request.headers),
        "source_ip": request.source_ip,
        "received_at": to_datetime(now).isoformat()[:-6] + "Z",
        "tenant": tenant,
    }


def challenge_of(payload: object) -> str | None:
    """The challenge that Slack sends to check the address of a webhook; the answer repeats it."""
    if isinstance(payload, dict) and payload.get("type") == "url_verification":
        challenge = payload.get("challenge")
        return challenge if isinstance(challenge, str) else None
    return None


def kept_headers(kept: KeptHeaders, headers: Headers) -> dict[str, str]:
    """The headers that a message keeps, a name that comes several times as one, within their bounds."""
    found: dict[str, str] = {}
    room = HEADERS_BYTES_MAX
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1")
        size = len(raw_name) + len(raw_value)
        if size > room or (name not in found and len(found) == HEADERS_MAX) or kept.why_not(name) is not None:
            continue
        value = raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
        room -= size
    if TRACEPARENT in found or TRACESTATE in found:
        _trace(found, context_of(headers))
    return found


def _trace(kept: dict[str, str], context: TraceContext | None) -> None:
    """The trace context as its standard reads it, which is not as other headers that come twice."""
    traced = context.headers if context is not None and TRACEPARENT in kept else {}
    for name in (TRACEPARENT, TRACESTATE):
        if kept.pop(name, None) is not None and name in traced:
            kept[name] = traced[name]


def _needed(headers: Headers, name: bytes, what_for: str) -> bytes:
    values = [value for key, value in headers if key == name]
    if len(values) != 1 or not values[0]:
        there = "is given twice" if len(values) > 1 else "is missing"
        raise SkepError(Code.MALFORMED, f"the header {name.decode()}, which {what_for}, {there}")
    return values[0]


def _evaluated(expression: Expression, values: Values, what: str) -> str:
    try:
        value = evaluate_json(expression, values)
    except ExpressionError as error:
        raise without_value(error, what) from None
    if type(value) is int:
        value = str(value)
    if isinstance(value, str):
        return _fit(value, Code.MAPPING_FAILED, what)
    raise SkepError(
        Code.MAPPING_FAILED, f"{what} is neither a text nor a whole number", expression=expression.text
    )  # fmt: skip


def _fit(key: str, code: Code, what: str) -> str:
    if is_fit(key):
        return key
    raise SkepError(code, f"{what} must have 1 to {NAME_CHARACTERS} characters, none of them control characters")
