"""From a request to its answer: verify it, deduplicate it, make a message, and store the message with a receipt in one transaction.

The body is parsed only after the signature was verified. A repeat gets the recorded answer of the first and does nothing, even when the app
has changed since and would refuse it now.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import msgspec
from msgspec import Struct

from skep.clock import Instant
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.ids import Id, id_text
from skep.model import DEFAULT_TENANT, NewMessage, PushStatus, QueueKey
from skep.model.key import SERVER
from skep.model.record import EntityKey, Receipt, ReceiptKey
from skep.model.refusal import Refusal
from skep.observe.metrics import HookCounts, Meter
from skep.spec import off_loop
from skep.spec.ir import IdempotencySource
from skep.strict_json import read_json
from skep.webhooks.calling import Ran, Turns, accepted_by, input_of, run
from skep.webhooks.compiled import CompiledWebhook, WebhookCommand, WebhookTarget
from skep.webhooks.excerpts import excerpt
from skep.webhooks.forms import explained, is_form, payload_of
from skep.webhooks.functions import Function, Functions, FunctionsByName
from skep.webhooks.hooks import Hooks
from skep.webhooks.message import UNFIT, Made, make, unmade
from skep.webhooks.request import (
    HookRequest,
    Values,
    body_key,
    challenge_of,
    check_place,
    repeat_key,
    tenant_of,
    values_of,
)
from skep.wire.webhooks import ChallengeResponse, HookResponse, QuarantineResponse

LARGE_BYTES = 256 * 1024
"""A hash of a larger body is made in a thread: it takes a millisecond and more."""

StatusOf = Callable[[Code], int]
_SAID = frozenset({Code.SIGNATURE_INVALID, Code.SIGNATURE_MALFORMED, Code.PAYLOAD_TOO_LARGE, Code.QUEUE_FULL})
"""Codes whose error text holds nothing from the request."""
_NO_VALUES = ("the body is ", "the form has ", "the header ")
"""How messages of MALFORMED begin that name places and headers, and no value."""
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}", re.ASCII)
"""The field of a message that a type names, at the start of a path. What follows may be the key of a map, and so the request's."""
NO_QUERY = "a webhook's address has no query: take off what follows the question mark in the sender's settings"

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode


class HookAnswer(Struct, frozen=True, gc=False):
    """A status and the JSON of its body."""

    status: int
    body: bytes


class _Hook(Struct, frozen=True, gc=False):
    """One verified request on its way; ``content`` is the JSON in its body."""

    webhook: CompiledWebhook
    request: HookRequest
    content: bytes
    tenant: str
    values: Values
    now: Instant
    counts: HookCounts


class Intake:
    """Takes requests for webhooks."""

    def __init__(
        self,
        engine: Engine,
        hooks: Hooks,
        meter: Meter,
        json_depth: int,
        functions: FunctionsByName | None = None,
        status_of: StatusOf = lambda _: HTTPStatus.UNPROCESSABLE_ENTITY,
    ) -> None:
        """``status_of`` says which status an error is answered with."""
        self._engine = engine
        self._functions = Functions(engine, functions)
        self._hooks = hooks
        self._meter = meter
        self._turns = Turns()
        self._status_of = status_of
        # The payload stands in an envelope, and the whole must be no deeper than what can be pushed.
        self._json_depth = json_depth - 1

    def find(self, name: str) -> CompiledWebhook:
        """The webhook of that name; raises when there is none, or none that can be served here."""
        return self._hooks.find(name)

    async def receive(self, webhook: CompiledWebhook, request: HookRequest) -> HookAnswer:
        """The answer to a request; raises the error of a refused one."""
        counts = self._meter.hook(webhook.name)
        tenant: str | None = None
        try:
            now = self._engine.now()
            if webhook.verify is not None:
                await _beside(request, webhook.verify, request.headers, request.body, now)
            check_place(webhook, request)
            content = request.body
            if is_form(request.headers, content):
                content = await _beside(request, payload_of, content)
            try:
                payload = await read_json(content, self._json_depth)
            except SkepError as error:
                raise explained(request.headers, error) if content is request.body else error from None
            if webhook.answers_challenge and (challenge := challenge_of(payload)) is not None:
                return HookAnswer(HTTPStatus.OK, _encode(ChallengeResponse(challenge)))
            tenant = await off_loop(lambda: tenant_of(webhook, request, payload))
            values = values_of(webhook, request, tenant, payload, now)
            hook = _Hook(webhook, request, content, tenant, values, now, counts)
            if webhook.target is not None:
                return await self._enqueue(hook, webhook.target)
            return await self._run(hook)
        except SkepError as error:
            counts.refused += 1
            self._note(webhook, request, tenant, error)
            raise

    def refused(self, webhook: CompiledWebhook, request: HookRequest, error: SkepError) -> None:
        """Note a request that was refused before its body was there."""
        self._meter.hook(webhook.name).refused += 1
        self._note(webhook, request, None, error)

    def _note(self, webhook: CompiledWebhook, request: HookRequest, tenant: str | None, error: SkepError) -> None:
        """Keep the last refusals. A request without a verified sender or tenant is noted under no tenant."""
        if tenant is None:
            tenant = SERVER if webhook.tenant is not None else DEFAULT_TENANT
        queue = "" if webhook.target is None else webhook.target.queue.name
        self._engine.refusals.note(
            Refusal(
                webhook.name, self._engine.now(), error.code, self._status_of(error.code), _said(error), request.source_ip,
                excerpt(request.headers, request.body), tenant, queue,
            )
        )  # fmt: skip

    async def _enqueue(self, hook: _Hook, target: WebhookTarget) -> HookAnswer:
        key: str | None = None
        try:
            key = await _key_of(hook)
            made = await off_loop(lambda: make(target, hook.values, hook.content))
            return await self._push(hook, target, key, made)
        except SkepError as error:
            if error.code not in UNFIT:
                raise
            return await self._unfit(hook, target, key, _of_one_message(error))

    async def _push(self, hook: _Hook, target: WebhookTarget, key: str | None, made: Made) -> HookAnswer:
        message = _message(hook, target, made)
        recording = None if key is None else _Recording(hook, key, quarantined=False)
        outcome = await self._engine.push([message], json_checked=True, receipt=recording)
        if outcome.recorded is not None:
            return _repeated(hook, HTTPStatus.ACCEPTED, outcome.recorded)
        result = outcome.results[0]
        queue = self._meter.queue(hook.tenant, message.queue.name)
        if result.status is PushStatus.REFUSED:
            queue.refused += 1
            raise SkepError(result.code or Code.INTERNAL, result.reason or "refused")
        hook.counts.accepted += 1
        if result.status is PushStatus.DUPLICATE:
            queue.duplicate += 1
        else:
            queue.pushed += 1
            if recording is not None:
                return HookAnswer(HTTPStatus.ACCEPTED, recording.answer)
        return HookAnswer(HTTPStatus.ACCEPTED, _encode(HookResponse(True, key, id_text(result.id))))

    async def _unfit(self, hook: _Hook, target: WebhookTarget, key: str | None, error: SkepError) -> HookAnswer:
        """Refuse a message that does not fit its queue, or store it in the quarantine."""
        if not target.quarantines:
            return await self._again_or(error, hook, key, HTTPStatus.ACCEPTED)
        if key is None and hook.webhook.repeats_by is not IdempotencySource.NONE:
            key = await _beside(hook.request, body_key, hook.request)
        made = await off_loop(lambda: unmade(target, hook.values, hook.content))
        message = _message(hook, target, made)
        recording = None if key is None else _Recording(hook, key, quarantined=True)
        await self._hooks.catalogue.prepare(message.queue)
        outcome = await self._engine.records.quarantine(message, error.message, recording)
        if outcome.recorded is not None:
            return _repeated(hook, HTTPStatus.ACCEPTED, outcome.recorded)
        result = outcome.results[0]
        if result.status is PushStatus.REFUSED:
            raise SkepError(result.code or Code.INTERNAL, result.reason or "refused")
        hook.counts.quarantined += 1
        return HookAnswer(HTTPStatus.ACCEPTED, _encode(QuarantineResponse(False, True, key, id_text(result.id))))

    async def _run(self, hook: _Hook) -> HookAnswer:
        assert hook.webhook.call is not None
        key = await _key_of(hook)
        call = hook.webhook.call
        function = self._functions.find(call.app, call.name)
        if function is not None:
            return await self._run_function(hook, call, function, key)
        try:
            accepted = await off_loop(lambda: accepted_by(call, hook.values))
        except SkepError as error:
            return await self._again_or(error, hook, key, HTTPStatus.OK)
        entity = EntityKey(accepted.entity.name, accepted.id, hook.tenant)
        receipt = None if key is None else _receipt(hook, key, b"")
        async with self._turns.of(entity):
            return _ran(hook, await run(self._engine, accepted, entity, receipt, hook.now))

    async def _run_function(self, hook: _Hook, call: WebhookCommand, function: Function, key: str | None) -> HookAnswer:
        try:
            input_ = await off_loop(lambda: input_of(call, hook.values))
        except SkepError as error:
            return await self._again_or(error, hook, key, HTTPStatus.OK)
        receipt = None if key is None else _receipt(hook, key, b"")
        return _ran(hook, await self._functions.run(function, input_, receipt))

    async def _again_or(self, error: SkepError, hook: _Hook, key: str | None, status: HTTPStatus) -> HookAnswer:
        """The recorded answer to a request that was taken before the app changed; else the error stands."""
        if key is not None:
            _, [receipt] = await self._engine.records.read([], [_receipt_key(hook, key)])
            if receipt is not None:
                return _repeated(hook, status, receipt.answer)
        raise error


async def _key_of(hook: _Hook) -> str | None:
    """The deduplication key: a hash, a header, or the value of an expression."""
    if hook.webhook.repeats_by is IdempotencySource.BODY:
        return await _beside(hook.request, repeat_key, hook.webhook, hook.request, hook.values)
    return await off_loop(lambda: repeat_key(hook.webhook, hook.request, hook.values))


async def _beside(request: HookRequest, work: Callable[..., T], *arguments: object) -> T:
    """Work that goes over the whole body: in a thread when the body is large, so that other requests go on."""
    if len(request.body) > LARGE_BYTES:
        return await asyncio.to_thread(work, *arguments)
    return work(*arguments)


class _Recording:
    """Makes the receipt once the message has its id, which the recorded answer names."""

    __slots__ = ("_hook", "_key", "_quarantined", "answer")

    def __init__(self, hook: _Hook, key: str, *, quarantined: bool) -> None:
        self._hook = hook
        self._key = key
        self._quarantined = quarantined
        self.answer = b""

    def __call__(self, id_: Id) -> Receipt:
        key, text = self._key, id_text(id_)
        told = QuarantineResponse(False, True, key, text) if self._quarantined else HookResponse(True, key, text)
        self.answer = _encode(told)
        return _receipt(self._hook, key, self.answer)


def _message(hook: _Hook, target: WebhookTarget, made: Made) -> NewMessage:
    return NewMessage(QueueKey(target.queue.name, hook.tenant), made.payload, headers=made.headers)


def _receipt_key(hook: _Hook, key: str) -> ReceiptKey:
    return ReceiptKey(hook.webhook.scope, key, hook.tenant)


def _receipt(hook: _Hook, key: str, answer: bytes) -> Receipt:
    return Receipt(_receipt_key(hook, key), answer, Instant(hook.now + hook.webhook.window_micros))


def _ran(hook: _Hook, ran: Ran) -> HookAnswer:
    if ran.repeated:
        return _repeated(hook, HTTPStatus.OK, ran.answer)
    hook.counts.accepted += 1
    return HookAnswer(HTTPStatus.OK, ran.answer)


def _repeated(hook: _Hook, status: HTTPStatus, recorded: bytes) -> HookAnswer:
    hook.counts.repeated += 1
    return HookAnswer(status, recorded)


def _said(error: SkepError) -> str:
    """The reason of a refusal, without anything from the request."""
    if error.code in _SAID or error.message == NO_QUERY:
        return error.message
    if error.code is Code.MALFORMED and error.message.startswith(_NO_VALUES):
        return error.message
    field, expected, expression = (error.details.get(name) for name in ("field", "expected", "expression"))
    named = _FIELD.match(field) if isinstance(field, str) else None
    place = f"field {named[0]!r}: " if named else ""
    if isinstance(expected, str):
        return f"{place}expected {expected}"
    return f"{place}the expression {expression} has no value that will do" if isinstance(expression, str) else ""


def _of_one_message(error: SkepError) -> SkepError:
    """The error of a push with one message, without the message's number."""
    details = {name: value for name, value in error.details.items() if name != "index"}
    return SkepError(error.code, error.message.removeprefix("message 0: "), **details)
