"""A webhook made ready to run: its verifier, its expressions and its target compiled once, its secrets read once."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct

from skep.apps.compiled import CompiledApp, DeclaredQueue
from skep.clock import seconds
from skep.engine.validate import NAME_CHARACTERS
from skep.entities import CompiledEntity, compile_entity
from skep.spec import App, Expression, FieldMapping, compile_expression, compile_mapping, effective_idempotency
from skep.spec.ir import CommandCall, IdempotencySource, OnInvalid, Scheme, Tenant, TenantSource, Webhook
from skep.spec.kept_headers import KeptHeaders, kept_of
from skep.spec.senders import SIGNED_IDS
from skep.spec.validate_webhook import scheme_of
from skep.spec.variables import ENVELOPE, TENANT, WEBHOOK
from skep.webhooks.signatures import Verifier, compile_verifier


class WebhookTarget(Struct, frozen=True, eq=False):
    """The queue that a webhook pushes to.

    ``mapping`` makes the message; without it the message is the ``envelope``, those of its fields that the queue has.
    """

    queue: DeclaredQueue
    mapping: FieldMapping | None
    envelope: tuple[str, ...]
    quarantines: bool


class WebhookCommand(Struct, frozen=True, eq=False):
    """The command that a webhook runs at once; ``entity`` is None when the app does not declare it."""

    app: str
    name: str
    command: str
    entity: CompiledEntity | None
    mapping: FieldMapping


class CompiledWebhook(Struct, frozen=True, eq=False):
    """A webhook. It has a target or a call. Names of headers are in small letters; ``scope`` is that of its receipts.

    Any of the ``idempotency_headers`` may have the key.
    """

    name: str
    scope: str
    verify: Verifier | None
    repeats_by: IdempotencySource
    window_micros: int
    idempotency_headers: tuple[bytes, ...]
    key: Expression | None
    kept: KeptHeaders
    tenant: TenantSource | None
    tenant_header: bytes
    tenant_key: Expression | None
    answers_challenge: bool
    target: WebhookTarget | None
    call: WebhookCommand | None


def compile_webhook(
    compiled: CompiledApp, name: str, webhook: Webhook, environment: Mapping[str, str]
) -> CompiledWebhook:
    """A webhook of an app; INVALID_SPEC when a secret is missing or cannot be one."""
    idempotency = effective_idempotency(webhook)
    by_key = idempotency.source is IdempotencySource.KEY
    by_header = idempotency.source is IdempotencySource.HEADER
    return CompiledWebhook(
        name=name,
        scope=_scope(name),
        verify=compile_verifier(webhook.verify, environment),
        repeats_by=idempotency.source,
        window_micros=seconds(idempotency.window_seconds),
        idempotency_headers=_idempotency_headers(webhook, idempotency.value) if by_header else (),
        key=compile_expression(idempotency.value, WEBHOOK) if by_key else None,
        kept=kept_of(webhook),
        tenant=webhook.tenant.source if webhook.tenant is not None else None,
        tenant_header=_tenant_header(webhook.tenant),
        tenant_key=_tenant_key(webhook.tenant),
        answers_challenge=webhook.verify is not None and webhook.verify.scheme is Scheme.SLACK,
        target=_target(compiled.queues[webhook.queue], webhook) if webhook.queue is not None else None,
        call=_call(compiled.app, webhook.command) if webhook.command is not None else None,
    )


def _idempotency_headers(webhook: Webhook, header: str) -> tuple[bytes, ...]:
    """The names of a header that has a key: the id that Standard Webhooks sign has two, which say the same once verified."""
    is_signed = scheme_of(webhook) is Scheme.STANDARD_WEBHOOKS and header.lower() in SIGNED_IDS
    return tuple(_small(name) for name in (SIGNED_IDS if is_signed else (header,)))


def _scope(name: str) -> str:
    """A scope is a name, and may be no longer than one."""
    scope = f"hook:{name}"
    return scope if len(scope) <= NAME_CHARACTERS else f"hook:{sha256(name.encode()).hexdigest()}"


def _target(queue: DeclaredQueue, webhook: Webhook) -> WebhookTarget:
    fields = queue.spec.message_type
    mapping = compile_mapping(webhook.message, WEBHOOK, fields or None) if webhook.message else None
    return WebhookTarget(
        queue=queue,
        mapping=mapping,
        envelope=tuple(name for name in ENVELOPE if not fields or name in fields),
        quarantines=queue.spec.on_invalid is OnInvalid.QUARANTINE,
    )


def _call(app: App, command: CommandCall) -> WebhookCommand:
    entity = app.entities.get(command.entity)
    declared = entity.commands[command.command].input if entity is not None else None
    return WebhookCommand(
        app=app.name,
        name=f"{command.entity}.{command.command}",
        command=command.command,
        entity=compile_entity(command.entity, entity) if entity is not None else None,
        mapping=compile_mapping(command.fields, WEBHOOK, declared),
    )


def _tenant_header(tenant: Tenant | None) -> bytes:
    return _small(tenant.header) if tenant is not None and tenant.header is not None else b""


def _tenant_key(tenant: Tenant | None) -> Expression | None:
    return compile_expression(tenant.key, TENANT) if tenant is not None and tenant.key is not None else None


def _small(header: str) -> bytes:
    return header.lower().encode()
