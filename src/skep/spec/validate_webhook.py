"""The validator of webhooks: where their messages go, how senders prove themselves, and how repeats are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from skep.spec.checking import Checking
from skep.spec.ir import CommandCall, Fields, Idempotency, IdempotencySource, Scheme, TenantSource, Verify, Webhook
from skep.spec.problems import Path
from skep.spec.types import Type, fits, print_type
from skep.spec.variables import ENVELOPE, WEBHOOK

TOLERANCE_SECONDS_MAX = 86_400.0

CheckCall = Callable[[Checking, CommandCall, Path, Mapping[str, Type]], None]
_IN_URL = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


def check_webhook(checking: Checking, name: str, webhook: Webhook, path: Path, check_call: CheckCall) -> None:
    """One webhook."""
    if not _IN_URL.fullmatch(name):
        checking.problem(path, f"{name[:60]!r} cannot stand in an address", "letters, digits, _ and -")
    if (webhook.queue is None) == (webhook.command is None):
        wanted = "queue: Name, or command: Entity.Command { … }"
        checking.problem(path, "a webhook has a queue, or a command", wanted, absence=True)
    if webhook.command is not None:
        check_call(checking, webhook.command, (*path, "command"), WEBHOOK)
        if webhook.message:
            checking.problem((*path, "message"), "a message is for a queue; a command has its own fields", "no message")
    if webhook.queue is not None:
        _check_message(checking, webhook, path)
    _check_verify(checking, webhook.verify, path)
    if webhook.idempotency is not None:
        _check_idempotency(checking, webhook.idempotency, (*path, "idempotency"))
    for header in webhook.keep_headers:
        checking.header((*path, "keep_headers"), header)
    tenant = webhook.tenant
    if tenant is not None and tenant.source is TenantSource.HEADER:
        checking.header((*path, "tenant"), tenant.header or "")


def effective_idempotency(webhook: Webhook) -> Idempotency:
    """How a webhook tells repeats: as it says, or by what its sender's scheme offers, or by the body."""
    if webhook.idempotency is not None:
        return webhook.idempotency
    scheme = webhook.verify.scheme if webhook.verify else Scheme.NONE
    match scheme:
        case Scheme.STANDARD_WEBHOOKS:
            return Idempotency(source=IdempotencySource.HEADER, value="webhook-id")
        case Scheme.GITHUB:
            return Idempotency(source=IdempotencySource.HEADER, value="x-github-delivery")
        case _:
            return Idempotency(source=IdempotencySource.BODY)


def _check_message(checking: Checking, webhook: Webhook, path: Path) -> None:
    assert webhook.queue is not None
    target = checking.app.queues.get(webhook.queue)
    if target is None:
        checking.unknown((*path, "queue"), "queue", webhook.queue, checking.app.queues)
    wanted = target.message_type if target and target.message_type else None
    if webhook.message:
        checking.mapping((*path, "message"), webhook.message, WEBHOOK, wanted, f"the message for {webhook.queue}")
    elif wanted is not None:
        _check_envelope(checking, wanted, webhook.queue, path)


def _check_envelope(checking: Checking, wanted: Fields, queue: str, path: Path) -> None:
    for name, field in wanted.items():
        if name not in ENVELOPE:
            if field.required:
                message = f"the queue {queue!r} requires {name!r}, which a webhook does not have"
                checking.problem(
                    (*path, "queue"), message, "message { … } with every field, or only " + ", ".join(ENVELOPE)
                )
        elif not fits(WEBHOOK[name], field.type):
            have = print_type(WEBHOOK[name])
            checking.problem(
                (*path, "queue"), f"{name!r} of {queue!r} is {print_type(field.type)}, here it is {have}", have
            )


def _check_verify(checking: Checking, verify: Verify | None, path: Path) -> None:
    at = (*path, "verify")
    if verify is None:
        checking.warning(path, "anyone who knows the address can post to it", "a verify_… block, or verify: none")
        return
    if verify.scheme is Scheme.NONE:
        if verify.secret_env:
            checking.problem(at, "there is nothing to verify with these secrets", "a scheme, or no secret_env")
        return
    checking.secrets(at, verify.secret_env, needed=True)
    checking.duration((*at, "tolerance_seconds"), "the tolerance", verify.tolerance_seconds, TOLERANCE_SECONDS_MAX)
    if verify.scheme is Scheme.HMAC:
        if verify.header is None:
            wanted = 'header: "X-Signature"'
            checking.problem(at, "verify_hmac does not say where the signature is", wanted, absence=True)
        else:
            checking.header((*at, "header"), verify.header)
    elif verify.header is not None or verify.prefix:
        checking.problem(at, f"{verify.scheme} has a header and prefix of its own", "neither header nor prefix")


def _check_idempotency(checking: Checking, idempotency: Idempotency, path: Path) -> None:
    if idempotency.source is IdempotencySource.KEY:
        checking.key((*path, "value"), idempotency.value, WEBHOOK)
    elif idempotency.source is IdempotencySource.HEADER:
        checking.header((*path, "value"), idempotency.value)
    checking.duration((*path, "window_seconds"), "the window", idempotency.window_seconds)
