"""The parser of webhooks."""

from __future__ import annotations

from skep.spec.faults import TextError
from skep.spec.ir import Algorithm, Encoding, Idempotency, Scheme, Tenant, TenantSource, Verify, Webhook
from skep.spec.parse_queue import parse_call, parse_idempotency
from skep.spec.problems import Path
from skep.spec.reading import Reading, word_of
from skep.spec.syntax import Block, Entry
from skep.spec.values import read_duration, read_name, read_string, read_strings

VERIFIERS = {f"verify_{scheme}": scheme for scheme in Scheme if scheme is not Scheme.NONE}
_PARTS = (
    "queue", "command", "verify", *VERIFIERS, "idempotency", "idempotency_key", "idempotency_window", "keep_headers",
    "tenant", "message",
)  # fmt: skip
_OF_HMAC = ("header", "secret_env", "prefix", "encoding", "algorithm")
_OF_TIMED = ("secret_env", "tolerance")
_OF_OTHERS = ("secret_env",)
_TIMED = frozenset({Scheme.STANDARD_WEBHOOKS, Scheme.STRIPE, Scheme.SLACK})


def parse_webhook(reading: Reading, block: Block, path: Path) -> Webhook:
    """A webhook from its block."""
    found: dict[str, object] = {}
    for entry in reading.entries(block, _PARTS, "a webhook"):
        at = (*path, entry.name)
        match entry.name:
            case "queue":
                found["queue"] = reading.value(entry, at, read_name)
            case "command":
                found["command"] = parse_call(reading, entry, at)
            case "keep_headers":
                found["keep_headers"] = reading.value(entry, at, read_strings)
            case "tenant":
                found["tenant"] = reading.value(entry, at, _read_tenant)
            case "message":
                inner = reading.block(entry, at)
                found["message"] = reading.expressions(inner, at, "the message") if inner else None
            case "idempotency" | "idempotency_key" | "idempotency_window":
                known = found.get("idempotency")
                assert known is None or isinstance(known, Idempotency)
                found["idempotency"] = parse_idempotency(reading, entry, (*path, "idempotency"), known)
            case _:
                _verify(reading, entry, found, path)
    return Webhook(**{name: value for name, value in found.items() if value is not None})  # type: ignore[arg-type]


def _read_tenant(text: str) -> Tenant:
    if text == TenantSource.PATH:
        return Tenant(source=TenantSource.PATH)
    word, _, rest = text.partition(" ")
    if word == TenantSource.HEADER and rest:
        return Tenant(source=TenantSource.HEADER, header=read_string(rest.strip()))
    if word == TenantSource.KEY and rest:
        return Tenant(source=TenantSource.KEY, key=rest.strip())
    raise TextError(
        0, f"{text[:40]!r} does not say where the tenant is", 'key payload.tenant, path, or header "X-Tenant"'
    )


def _verify(reading: Reading, entry: Entry, found: dict[str, object], path: Path) -> None:
    at = (*path, "verify")
    if "verify" in found:
        reading.problem(entry.span, "a webhook is verified in one way only", "one verify")
    elif entry.name == "verify":
        reading.value(entry, at, word_of("none"))
        found["verify"] = Verify(scheme=Scheme.NONE)
    elif (block := reading.block(entry, at)) is not None:
        found["verify"] = _verifier(reading, VERIFIERS[entry.name], block, at)


def _verifier(reading: Reading, scheme: Scheme, block: Block, path: Path) -> Verify:
    known = _OF_HMAC if scheme is Scheme.HMAC else _OF_TIMED if scheme in _TIMED else _OF_OTHERS
    found: dict[str, object] = {}
    for part in reading.entries(block, known, f"verify_{scheme}"):
        at = (*path, part.name)
        match part.name:
            case "secret_env":
                found["secret_env"] = reading.value(part, at, read_strings)
            case "tolerance":
                found["tolerance_seconds"] = reading.value(part, (*path, "tolerance_seconds"), read_duration)
            case "encoding":
                found["encoding"] = reading.value(part, at, word_of(*Encoding))
            case "algorithm":
                found["algorithm"] = reading.value(part, at, word_of(*Algorithm))
            case _:
                found[part.name] = reading.value(part, at, read_string)
    return Verify(scheme=scheme, **{name: value for name, value in found.items() if value is not None})  # type: ignore[arg-type]
