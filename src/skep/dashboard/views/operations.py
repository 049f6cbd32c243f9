"""Operations: the load of the server and its limits, queued calls, the partitions that they wait for, and buffered messages.

The audit log is a page of its own behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skep.clock import Instant
from skep.dashboard.site import Action, Fields, Page, Site
from skep.engine import Engine
from skep.engine.push.buffer import BufferFigures
from skep.engine.push.spool.spool import SpoolFigures
from skep.http.auditing import told
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.request.permission import ADMIN_TENANT
from skep.http.routes.refusals import visible_refusal
from skep.http.views import age_seconds, wanted_id
from skep.ids import id_text
from skep.model.chores import Connections
from skep.model.key import SERVER, Verb
from skep.model.operation import Operation, OperationFilter, OperationStatus
from skep.wire.status import FailedCalls

LOOKED_AT = 500
"""Operations that one look groups by partition: the latest that wait."""
PAGE_ROWS = 50
AUDIT_ROWS = 100
PARTITIONS = 12


class Threshold(NamedTuple):
    """A bound, how near the server is to it, and what happens beyond."""

    name: str
    value: float
    most: float
    shown: str
    bound: str
    then: str

    @property
    def share(self) -> float:
        """How near it is, from 0 to 1."""
        return min(1.0, self.value / self.most) if self.most else 0.0

    @property
    def tone(self) -> str:
        """Red once it is passed, amber when it is near."""
        return "red" if self.value >= self.most else "amber" if self.value >= self.most * 0.8 else "green"


class AwaitedPartition(NamedTuple):
    """A partition that operations wait for."""

    queue: str
    partition: str
    operations: int
    messages: int
    oldest_at: Instant
    is_stuck: bool
    is_blocked: bool


def thresholds(engine: Engine) -> list[Threshold]:
    """The thresholds of admission, with their current values on this server."""
    said = engine.settings.admission
    load, depth = engine.load, engine.operations.depth
    limits = engine.settings.limits
    return [
        Threshold("Load", load, said.push_load, _percent(load), _percent(said.push_load), "pushes are queued as operations"),
        Threshold("Load", load, said.ack_load, _percent(load), _percent(said.ack_load), "acks are queued as operations"),
        Threshold("Load", load, said.pop_load, _percent(load), _percent(said.pop_load), "pops are refused"),
        Threshold("Operations", depth, said.push_operations, f"{depth:,}", f"{said.push_operations:,}", "pushes are refused"),
        Threshold("Operations", depth, said.ack_operations, f"{depth:,}", f"{said.ack_operations:,}", "acks are refused"),
        Threshold(
            "Waiting pops", engine.parked_polls, limits.parked_polls, f"{engine.parked_polls:,}", f"{limits.parked_polls:,}",
            "further waiting requests are refused",
        ),
    ]  # fmt: skip


def failing(one: FailedCalls) -> str:
    """The text of an alarm about failing calls."""
    return f"{one.calls:,} call{'' if one.calls == 1 else 's'} failed with {one.code} in the last minute"


def _percent(value: float) -> str:
    return f"{value * 100:.0f}%"


class Load(NamedTuple):
    """The load of the server by all tenants, and the calls that it has accepted and not stored yet."""

    thresholds: list[Threshold]
    enabled: bool
    drain_rate: float
    connections: Connections
    spool: SpoolFigures
    has_spool: bool
    away_seconds: float
    spooled_seconds: float
    buffer: BufferFigures


def load_of(engine: Engine) -> Load:
    """The load of this server. Show it only to callers who may read the queues of all tenants."""
    now = engine.now()
    spool = SpoolFigures() if engine.spool is None else engine.spool.figures()
    return Load(
        thresholds(engine), engine.settings.admission.enabled, engine.operations.drain_rate, engine.connections(), spool,
        engine.spool is not None, 0.0 if spool.away_since is None else age_seconds(spool.away_since, now),
        0.0 if spool.oldest_at is None else age_seconds(spool.oldest_at, now), engine.buffer.figures(),
    )  # fmt: skip


class PutOff(NamedTuple):
    """The queued operations: of all tenants as this server knows them, or of the tenant as far as one look goes."""

    operations: int
    oldest_seconds: float
    stuck: int
    blocked: int


def _waiting(engine: Engine, own: Sequence[Operation], *, is_servers: bool) -> PutOff:
    now = engine.now()
    if is_servers:
        kept = engine.operations
        return PutOff(
            kept.depth, 0.0 if kept.oldest_at is None else age_seconds(kept.oldest_at, now), kept.stuck, kept.blocked
        )
    oldest_at = min((one.created_at for one in own), default=now)
    blocked = sum(one.status is OperationStatus.BLOCKED for one in own)
    return PutOff(len(own), age_seconds(oldest_at, now), sum(one.stuck(now) for one in own), blocked)


async def operations(site: Site, call: Call) -> Answer:
    """The screen."""
    links, engine, sees = site.links(call), site.engine, call.visible
    status = parameters.choice(links.query, "status", OperationStatus)
    page = await engine.operations.page(
        OperationFilter(tenant=links.tenant, status=status, queue=links.query.get("queue") or None),
        parameters.position(links.query, "after"), PAGE_ROWS,
    )  # fmt: skip
    own: list[Operation] = []
    for waits in (OperationStatus.BLOCKED, OperationStatus.PENDING):
        found = await engine.operations.page(OperationFilter(tenant=links.tenant, status=waits), None, LOOKED_AT)
        own += [one for one in found.operations if sees(one.queue)]
    figures = await engine.operations.figures(links.tenant) if call.sees_all else []
    now = engine.now()
    return site.page(
        call, "operations.html", screen="operations", server=load_of(engine) if call.sees_server else None,
        figures=sorted(figures, key=lambda one: (-one.priority, one.kind, one.status)),
        waiting=_waiting(engine, own, is_servers=call.sees_server), places=_places(own, now), is_away=engine.store_away,
        rows=[(one, id_text(one.id), one.stuck(now)) for one in page.operations if sees(one.queue)], after=page.after,
        failed=[failing(one) for one in site.failed_calls(call)], status=status, statuses=list(OperationStatus), looked_at=LOOKED_AT,
        is_admin=call.principal is None or call.principal.may_all(Verb.ADMIN, links.tenant),
    )  # fmt: skip


def _places(waiting: Sequence[Operation], now: Instant) -> list[AwaitedPartition]:
    """The partitions that operations wait for, the longest wait first. The first operation of a partition holds up the others."""
    found: dict[tuple[str, str], AwaitedPartition] = {}
    for one in waiting:
        at = (one.queue.name, one.partition)
        known = found.get(at)
        found[at] = AwaitedPartition(
            *at, (known.operations if known else 0) + 1, (known.messages if known else 0) + one.messages,
            min(known.oldest_at, one.created_at) if known else one.created_at, (known is not None and known.is_stuck) or one.stuck(now),
            (known is not None and known.is_blocked) or one.status is OperationStatus.BLOCKED,
        )  # fmt: skip
    return sorted(found.values(), key=lambda one: one.oldest_at)[:PARTITIONS]


async def cancel(site: Site, call: Call, fields: Fields) -> str:  # noqa: ARG001 - an action's
    """Cancel an operation that nobody performs just now."""
    links, id_ = site.links(call), wanted_id(call.path("operation"))
    call.check((await site.engine.operations.find(links.tenant, id_)).queue)
    await site.engine.operations.cancel(links.tenant, id_)
    return links.url("operations", notice="cancelled")


async def audit(site: Site, call: Call) -> Answer:
    """The audit log, newest first: of the tenant, or of all tenants and the server itself."""
    links, principal = site.links(call), call.principal
    may_see_all = principal is None or principal.may_everywhere(Verb.ADMIN)
    everywhere = may_see_all and links.query.get("everywhere") == "yes"
    before = parameters.position(links.query, "after")
    found = await site.engine.access.list_audit(
        None if everywhere else links.tenant, before=before, limit=AUDIT_ROWS + 1
    )
    return site.page(
        call, "audit.html", screen="operations", entries=[told(one) for one in found[:AUDIT_ROWS]], everywhere=everywhere, may_see_all=may_see_all,
        after=found[AUDIT_ROWS - 1].position if len(found) > AUDIT_ROWS else None, servers=SERVER,
    )  # fmt: skip


async def refusals(site: Site, call: Call) -> Answer:
    """Requests that webhooks refused, newest first, as far as they may be seen: of one webhook, or the latest of all."""
    links = site.links(call)
    webhook = links.query.get("webhook") or None
    found = await site.engine.refusals.list(webhook, visible=visible_refusal(call, links.tenant))
    return site.page(call, "refusals.html", screen="operations", refusals=found, webhook=webhook, servers=SERVER)


PAGES: list[Page] = [
    Page("/operations", ("status", "queue", "after"), operations),
    Page("/operations/refusals", ("webhook",), refusals),
    Page("/operations/audit", ("everywhere", "after"), audit, ADMIN_TENANT),
]
ACTIONS: list[tuple[str, Action]] = [("/operations/{operation}/cancel", cancel)]
