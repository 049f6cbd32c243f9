"""Deliver a message: a signed POST by the Standard Webhooks scheme. The answer decides about the message and the endpoint.

Delivery is at least once: the message's id goes along as ``webhook-id``, so that a receiver can tell a repeat.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from msgspec import Struct

from skep import __version__
from skep.clock import MICROS_PER_SECOND, Clock, Instant, seconds
from skep.errors import Code, SkepError
from skep.spec.endpoint import endpoint_name
from skep.spec.ir import Deliver
from skep.spec.secrets import SecretKind, SecretUse, read_secret
from skep.spec.standard_keys import signed_content, signing_key
from skep.worker.addresses import Resolve, address_of, look_up
from skep.worker.posting import Answered, Target, post

RETRY_AFTER_SECONDS_MAX = 7 * 86_400
"""The longest time that a receiver can put a message off with Retry-After."""
TOLD_BYTES = 200
"""The most of an answer's body that the error text has."""
_GONE = 410
_OVERLOADED = frozenset({408, 425, 429})
_JSON = "application/json"
_OURS = frozenset({"host", "content-length", "connection", "transfer-encoding"})
"""Headers that a spec may not set, since they would change the request."""


class Result(StrEnum):
    """The outcome of a delivery, from the message's view."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """The endpoint failed: this counts against it."""
    REFUSED = "refused"
    """The endpoint is well, but refused this message."""
    GONE = "gone"
    """The endpoint wants no more messages."""


class DeliveryOutcome(Struct, frozen=True):
    """The outcome of a delivery, its reason, and the time of the next try if the receiver named one."""

    result: Result
    reason: str = ""
    retry_at: Instant | None = None


class Deliverer:
    """Posts the messages of one queue."""

    def __init__(
        self,
        deliver: Deliver,
        environment: Mapping[str, str],
        clock: Clock,
        *,
        allow_private: bool = False,
        resolve: Resolve = look_up,
        context: ssl.SSLContext | None = None,
    ) -> None:
        secrets = _Secrets(environment)
        url = deliver.url if deliver.url_env is None else secrets.read(deliver.url_env, SecretKind.ADDRESS)
        self._target = Target.of(url)
        self.url = endpoint_name(url)
        self._keys = [signing_key(name, secrets.read(name, SecretKind.SIGNING)) for name in deliver.secret_env]
        given = deliver.headers | {
            name: secrets.read(variable, SecretKind.HEADER) for name, variable in deliver.headers_env.items()
        }
        self._headers = {"user-agent": f"skep/{__version__}"}
        if self._target.credentials is not None:
            self._headers["authorization"] = self._target.credentials
        self._headers |= {name.lower(): value for name, value in given.items() if name.lower() not in _OURS}
        self._timeout_seconds = deliver.timeout_seconds
        self._clock = clock
        self._allow_private = allow_private
        self._resolve = resolve
        self._context = context or (ssl.create_default_context() if self._target.secure else None)

    async def deliver(
        self, message_id: str, body: bytes, content_type: str | None = None, event: Mapping[str, str] | None = None
    ) -> DeliveryOutcome:
        """Post one message; ``event`` are the headers of one that is a CloudEvent. Nothing is raised: every failure is an outcome."""
        headers = {"content-type": content_type or _JSON, **self._headers}
        if event is not None:  # one without data has no content type
            del headers["content-type"]
            headers |= event
        headers |= self._signed(message_id, body)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return self._judged(await self._post(headers, body))
        except TimeoutError:
            return DeliveryOutcome(Result.FAILED, f"{self.url}: no answer within {self._timeout_seconds:g} s")
        except SkepError as error:
            return DeliveryOutcome(Result.FAILED, error.message)
        except ValueError as error:  # a name that TLS does not take
            return DeliveryOutcome(Result.FAILED, f"{self.url}: {error}")

    async def _post(self, headers: dict[str, str], body: bytes) -> Answered:
        target = self._target
        address = await address_of(target.host, target.port, self._resolve, allow_private=self._allow_private)
        return await post(target, address, headers, body, context=self._context)

    def _signed(self, message_id: str, body: bytes) -> dict[str, str]:
        timestamp = self._clock.now() // MICROS_PER_SECOND
        headers = {"webhook-id": message_id, "webhook-timestamp": str(timestamp)}
        if self._keys:
            content = signed_content(message_id, timestamp, body)
            headers["webhook-signature"] = " ".join(key.sign(content) for key in self._keys)
        return headers

    def _judged(self, answer: Answered) -> DeliveryOutcome:
        if 200 <= answer.status < 300:
            return DeliveryOutcome(Result.DELIVERED)
        reason = f"{self.url} answered {answer.status}{_told(answer)}"
        if answer.status == _GONE:
            return DeliveryOutcome(Result.GONE, reason)
        failed = answer.status >= 500 or answer.status in _OVERLOADED
        return DeliveryOutcome(
            Result.FAILED if failed else Result.REFUSED, reason, self._retry_at(answer.headers.get("retry-after"))
        )

    def _retry_at(self, text: str | None) -> Instant | None:
        """The time that Retry-After names: seconds from now, or a date. Any other value is ignored."""
        if text is None:
            return None
        now = self._clock.now()
        if text.strip().isdecimal() and text.isascii():
            wait = min(int(text.strip()[:12]), RETRY_AFTER_SECONDS_MAX)
            return Instant(now + seconds(wait))
        try:
            at = parsedate_to_datetime(text)
            return Instant(max(now, min(_instant(at), now + seconds(RETRY_AFTER_SECONDS_MAX))))
        except (ValueError, TypeError, OverflowError):
            return None


class _Secrets:
    """The environment; INVALID_SETTING when it lacks a secret, or has none that can be used."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def read(self, variable: str, kind: SecretKind) -> str:
        try:
            return read_secret(SecretUse(variable, kind, ()), self._environment)
        except ValueError as error:
            raise SkepError(Code.INVALID_SETTING, str(error), variable=variable) from None


def _told(answer: Answered) -> str:
    text = answer.body[:TOLD_BYTES].decode("utf-8", "replace").strip()
    return f": {text}" if text else ""


def _instant(at: datetime) -> int:
    # A date of HTTP is in UTC, also in the old form that does not say so.
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * MICROS_PER_SECOND)
