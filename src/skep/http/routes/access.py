"""`/api/v1/keys…` and `/api/v1/audit`: API keys and the audit log."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from skep.access.administering import KeyDesk
from skep.access.keys import Minted, access_key_id, detail_of, parse
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.auditing import ANONYMOUS, told
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, AFTER_SEQ, LIMIT, next_after, page_limit
from skep.http.request.permission import ADMIN_TENANT, ADMINS
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable
from skep.model.key import SERVER, AuditEntry, AuditOutcome, Grant, KeyRecord, Verb
from skep.wire.access import AuditResponse, AuditView, AwsKey, KeyMade, KeyRequest, KeysResponse, KeyView
from skep.wire.times import to_datetime, to_instant

FORCE = Parameter("force", bool, "also when a key revokes itself and is the last one that administers its tenants")
KEY = Parameter("key", str, "the key's id: the part between `skep_` and the secret")

_decode = msgspec.json.Decoder(KeyRequest)


ROUTES: RouteTable[Engine] = RouteTable("Access")


@ROUTES.route(
    "POST", "/api/v1/keys", ADMINS, "Make a key; only this answer has its text", request=KeyRequest,
    answers={201: KeyMade},
    description="A key grants nothing that its maker does not have. On a server that asks for no keys, the first key takes "
    "effect at the next start.",
    example={"name": "orders service", "grants": [{"role": "read-write", "queues": ["orders.*"]}]},
)  # fmt: skip
async def create(engine: Engine, call: Call) -> Answer:
    request = await call.json(_decode)
    minted = await _desk(engine).make(
        call.principal, request.name, grants_of(request),
        created_by=ANONYMOUS if call.principal is None else call.principal.name,
        expires_at=None if request.expires_at is None else to_instant(request.expires_at),
        requests_per_second=request.requests_per_second, seal=engine.encryption.seal_secret if request.aws else None,
    )  # fmt: skip
    _note(call, minted.record.id)
    call.note(after=grants_text(minted.record))
    return json_answer(key_made(minted), HTTPStatus.CREATED)


@ROUTES.route(
    "GET", "/api/v1/keys", ADMINS, "List keys by id, revoked ones for 30 days", parameters=(AFTER_NAME, LIMIT),
    answers={200: KeysResponse},
)  # fmt: skip
async def list_keys(engine: Engine, call: Call) -> Answer:
    limit = page_limit(call.query)
    found = await _desk(engine).page(call.principal, call.query.get("after", ""), limit)
    return json_answer(KeysResponse([key_view(one) for one in found], next_after(found, limit, lambda one: one.id)))


@ROUTES.route(
    "DELETE", "/api/v1/keys/{key}", ADMINS, "Revoke a key, here at once and on other servers within a second",
    parameters=(KEY, FORCE), answers={200: KeyView},
    description="409 with LAST_ADMIN_KEY when a key would revoke itself and no other one administers its tenants.",
)  # fmt: skip
async def revoke(engine: Engine, call: Call) -> Answer:
    id_ = call.path("key")
    _note(call, id_[:100])
    revoked = await _desk(engine).revoke(call.principal, id_, force=parameters.flag(call.query, "force"))
    call.note(before=grants_text(revoked), after="revoked")
    return json_answer(key_view(revoked))


@ROUTES.route(
    "GET", "/api/v1/audit", ADMIN_TENANT, "See what admins did, newest first",
    parameters=(
        Parameter("everywhere", bool, "of all tenants, and what was done to the server itself"), AFTER_SEQ, LIMIT,
    ),
    answers={200: AuditResponse},
)  # fmt: skip
async def audit(engine: Engine, call: Call) -> Answer:
    everywhere = parameters.flag(call.query, "everywhere")
    if everywhere and call.principal is not None and not call.principal.may_everywhere(Verb.ADMIN):
        raise SkepError(Code.FORBIDDEN, "this needs admin on all queues of all tenants")
    limit = page_limit(call.query)
    before = parameters.position(call.query, "after")
    found = await engine.access.list_audit(None if everywhere else call.tenant, before=before, limit=limit)
    after = next_after(found, limit, lambda one: one.position)
    return json_answer(AuditResponse([audit_view(one) for one in found], after))


def _desk(engine: Engine) -> KeyDesk:
    return KeyDesk(engine.access, engine.now)


def grants_of(request: KeyRequest) -> list[Grant]:
    """The grants of a request."""
    grants = [item.grant for item in request.grants]
    meant = [grant for grant in grants if grant is not None]
    if len(meant) < len(grants):
        raise SkepError(Code.INVALID_REQUEST, "a grant says a role or verbs, and not both")
    return meant


def key_made(minted: Minted) -> KeyMade:
    """A new key with its text, as a struct of the wire."""
    presented, view = parse(minted.text), key_view(minted.record)
    if presented is None or detail_of(minted.record).secret is None:
        return KeyMade(minted.text, view)
    return KeyMade(minted.text, view, AwsKey(access_key_id(presented.id), presented.secret))


def key_view(record: KeyRecord) -> KeyView:
    """A key as a struct of the wire."""
    detail = detail_of(record)
    return KeyView(
        record.id, detail.name, list(detail.grants), to_datetime(record.created_at), detail.created_by,
        None if record.expires_at is None else to_datetime(record.expires_at),
        None if record.revoked_at is None else to_datetime(record.revoked_at), detail.requests_per_second,
    )  # fmt: skip


def grants_text(record: KeyRecord) -> str:
    """The grants of a key in words, for the audit log."""
    grants = detail_of(record).grants
    return "; ".join(f"{'+'.join(one.verbs)} on {','.join(one.queues)} of {','.join(one.tenants)}" for one in grants)


def _note(call: Call, id_: str) -> None:
    if call.touched is not None:
        call.touched.add(f"key:{id_}")


def audit_view(one: AuditEntry) -> AuditView:
    """An entry as a struct of the wire."""
    shown = told(one)
    detail = shown.detail
    return AuditView(
        one.position, to_datetime(one.at), one.actor, one.action, None if one.tenant == SERVER else one.tenant, list(one.queues),
        None if shown.outcome is None else AuditOutcome(shown.outcome), detail.verb, detail.target, detail.count, detail.before,
        detail.after, detail.error,
    )  # fmt: skip
