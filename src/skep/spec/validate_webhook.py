"""The validator of webhooks: the targets of their messages, the signatures of senders, and deduplication."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from skep.spec.ast import variables
from skep.spec.checking import Checking
from skep.spec.ir import (
    CommandCall,
    Fields,
    Idempotency,
    IdempotencySource,
    Scheme,
    Tenant,
    TenantSource,
    Verify,
    Webhook,
)
from skep.spec.problems import Path
from skep.spec.senders import SIGNED_IDS, block_for
from skep.spec.types import Type, fits, print_type
from skep.spec.validate_headers import check_kept
from skep.spec.variables import ENVELOPE, TENANT, WEBHOOK

TOLERANCE_SECONDS_MAX = 86_400.0

CheckCall = Callable[[Checking, CommandCall, Path, Mapping[str, Type]], None]
_TIMED = frozenset({Scheme.STANDARD_WEBHOOKS, Scheme.STRIPE, Scheme.SLACK})
"""Schemes whose signature covers a time."""
_SIGNED_HEADERS = {Scheme.STANDARD_WEBHOOKS: SIGNED_IDS}
"""Headers that identify a request and are covered by the signature. The signatures of GitHub, PagerDuty and Slack cover none."""
_IN_URL = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)


def check_webhook(checking: Checking, name: str, webhook: Webhook, path: Path, check_call: CheckCall) -> None:
    """Check one webhook."""
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
        _check_idempotency(checking, webhook.idempotency, scheme_of(webhook), (*path, "idempotency"))
    _check_window(checking, webhook, path)
    check_kept(checking, webhook, path)
    if webhook.tenant is not None:
        _check_tenant(checking, webhook.tenant, scheme_of(webhook), (*path, "tenant"))


def effective_idempotency(webhook: Webhook) -> Idempotency:
    """The deduplication of a webhook: as declared, else by the part that the sender signs (the id of Standard Webhooks, or the body).

    An unsigned id is not enough: an eavesdropper could post a request again under another id.
    """
    if webhook.idempotency is not None:
        return webhook.idempotency
    if scheme_of(webhook) is Scheme.STANDARD_WEBHOOKS:
        return Idempotency(source=IdempotencySource.HEADER, value=SIGNED_IDS[0])
    return Idempotency(source=IdempotencySource.BODY)


def scheme_of(webhook: Webhook) -> Scheme:
    """The signature scheme of a webhook."""
    return webhook.verify.scheme if webhook.verify else Scheme.NONE


def _check_message(checking: Checking, webhook: Webhook, path: Path) -> None:
    assert webhook.queue is not None
    wanted = checking.target(path, webhook.queue)
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
            _check_scheme(checking, verify, (*at, "header"))
    elif verify.header is not None or verify.prefix:
        checking.problem(at, f"{verify.scheme} has a header and prefix of its own", "neither header nor prefix")


def _check_scheme(checking: Checking, verify: Verify, path: Path) -> None:
    """Warn of a `verify_hmac` that would refuse every request, since the header's sender signs more than the body."""
    block = block_for(verify)
    if block is not None:
        secret = f'"{verify.secret_env[0]}"' if verify.secret_env else '"NAME_OF_A_VARIABLE"'
        message = f"{verify.header} is no HMAC-SHA256 of the body, so verify_hmac refuses what its sender posts"
        checking.warning(path, message, f"{block} {{ secret_env: {secret} }}")


def _check_idempotency(checking: Checking, idempotency: Idempotency, scheme: Scheme, path: Path) -> None:
    is_signed = True
    if idempotency.source is IdempotencySource.KEY:
        found = checking.key((*path, "value"), idempotency.value, WEBHOOK)
        # An expression may read `webhook-id`, which is signed.
        reads_headers = found is not None and "headers" in variables(found.tree)
        is_signed = not reads_headers or scheme is Scheme.STANDARD_WEBHOOKS
    elif idempotency.source is IdempotencySource.HEADER:
        checking.header((*path, "value"), idempotency.value)
        is_signed = idempotency.value.lower() in _SIGNED_HEADERS.get(scheme, ())
    if not is_signed and scheme is not Scheme.NONE:
        checking.warning(
            path,
            "the signature does not cover that header: who overhears one request can post it again under another key",
            "a key of the payload, or body_hash: true",
        )
    checking.duration((*path, "window_seconds"), "the window", idempotency.window_seconds)


def _check_window(checking: Checking, webhook: Webhook, path: Path) -> None:
    """Warn when a key is forgotten while its signature is still valid: that is the tolerance before and after its time."""
    known = effective_idempotency(webhook)
    verify = webhook.verify
    if verify is None or verify.scheme not in _TIMED or known.source is IdempotencySource.NONE:
        return
    if known.window_seconds < 2 * verify.tolerance_seconds:
        checking.warning(
            path if webhook.idempotency is None else (*path, "idempotency"),
            "a request that was overheard can be posted again: its key is forgotten before its signature is too old",
            f"a window of at least {2 * verify.tolerance_seconds:g} seconds, twice the tolerance",
        )


def _check_tenant(checking: Checking, tenant: Tenant, scheme: Scheme, path: Path) -> None:
    if tenant.source is TenantSource.KEY:
        checking.key(path, tenant.key or "", TENANT)
        return
    if tenant.source is TenantSource.HEADER:
        checking.header(path, tenant.header or "")
    if scheme is not Scheme.NONE:
        checking.warning(
            path,
            f"the signature does not cover the {tenant.source}: a request that is signed once is taken for any tenant",
            "tenant: key payload.…, of what is signed, or a webhook with a secret of its own for each tenant",
        )
