"""Samples the counters of all queues and groups, every few seconds. Only changed counters are written.

A row has the counters of a queue, group or tenant at an instant. Between two equal rows, and after the last row, nothing changed. So
when counters change after a quiet time, the last unchanged sample is written, too. Counters are written again after
`KEYFRAME_SECONDS`, as older rows age out. A look consists of many short transactions, so that other calls come in between.
"""

from __future__ import annotations

from functools import partial
from typing import Generic, NamedTuple, TypeVar

from skep.clock import Instant, seconds
from skep.model import QueueKey
from skep.store.rules import KEPT_SAMPLES_SECONDS, KEYFRAME_SECONDS, SAMPLE_EVERY_SECONDS, birth, is_new
from skep.store.sqlite.database import Database
from skep.store.sqlite.session import Session
from skep.store.sqlite.stats import group_counters, queue_counters
from skep.store.statements import load_statements

SQL = load_statements(__package__, "sampling")

PIECE = 100
"""How many queues or tenants one transaction looks at, at most."""
MINUTE = seconds(60)
_WHOLE_TENANT = 0
_QUEUE_ITSELF = 0

Figures = tuple[int, ...]
SampleKey = tuple[int, int]
"""Queue and group."""
PastKey = tuple[str, int]
"""Tenant and queue."""
Key = TypeVar("Key", bound=tuple[int | str, int])


class Noted(NamedTuple):
    """The newest row of a queue, group or tenant."""

    at: int
    figures: Figures


class TenantSums(NamedTuple):
    """The sums of a tenant's queues, without dead-letter queues, and when the first of them was made."""

    figures: Figures
    created_at: int


class SamplingStep(NamedTuple):
    """The result of one transaction: the newest rows, its sums by tenant, and the last queue (None when no queue is left)."""

    samples: dict[SampleKey, Noted]
    past: dict[PastKey, Noted]
    tenants: dict[str, TenantSums]
    last_id: int | None


class Sampling:
    """Remembers the newest row of each queue and group. After a start the rows are read from the file."""

    def __init__(self) -> None:
        self._samples: dict[SampleKey, Noted] = {}
        self._past: dict[PastKey, Noted] = {}
        self._looked_at: Instant | None = None

    async def look(self, db: Database, now: Instant) -> None:
        """Sample all queues and tenants once. Each piece is a transaction; only committed rows are remembered."""
        samples: dict[SampleKey, Noted] = {}
        past: dict[PastKey, Noted] = {}
        tenants: dict[str, TenantSums] = {}
        after: int | None = 0
        while after is not None:
            seen = await db.piece("sample", partial(self._look_at_queues, after, now), PIECE, _has_more)
            samples |= seen.samples
            past |= seen.past
            for name, tenant in seen.tenants.items():
                tenants[name] = _together(tenants.get(name), tenant)
            after = seen.last_id
        left = list(tenants.items())
        while left:
            seen = await db.piece("sample tenants", partial(self._look_at_tenants, left, now), PIECE, _has_more)
            past |= seen.past
            del left[: len(seen.past)]
        # Deleted queues and groups are forgotten with the old memory.
        self._samples, self._past, self._looked_at = samples, past, now

    def _look_at_queues(self, after: int, now: Instant, session: Session, size: int) -> SamplingStep:
        found = session.rows(SQL["queues_after"], (after, size))
        samples = Changes(session, "newest_sample", self._samples, self._held_at(now), now)
        past = Changes(session, "newest_past", self._past, self._held_at(now), now, by_minute=True)
        tenants: dict[str, TenantSums] = {}
        for _, tenant, name in found:
            queue = session.queue(QueueKey(name, tenant))
            counters = queue_counters(session, queue)
            figures = (*counters, session.depth(queue))
            samples.see((queue.id, _QUEUE_ITSELF), counters)
            for group in session.groups(queue).values():
                samples.see((queue.id, group.id), group_counters(queue, group))
            past.see((tenant, queue.id), figures, queue.created_at)
            if not queue.holds_dead_letters:
                tenants[tenant] = _together(tenants.get(tenant), TenantSums(figures, queue.created_at))
        if samples.rows:
            session.db.executemany(SQL["add_sample"], samples.rows)
            before = now - seconds(KEPT_SAMPLES_SECONDS)
            changed = dict.fromkeys(row[:2] for row in samples.rows)
            session.db.executemany(SQL["thin_samples"], [(*key, before) for key in changed])
        session.db.executemany(SQL["note_figures"], past.rows)
        return SamplingStep(samples.newest, past.newest, tenants, found[-1][0] if len(found) == size else None)

    def _look_at_tenants(
        self, tenants: list[tuple[str, TenantSums]], now: Instant, session: Session, size: int
    ) -> SamplingStep:
        past = Changes(session, "newest_past", self._past, self._held_at(now), now, by_minute=True)
        for name, tenant in tenants[:size]:
            past.see((name, _WHOLE_TENANT), tenant.figures, tenant.created_at)
        session.db.executemany(SQL["note_figures"], past.rows)
        return SamplingStep({}, past.newest, {}, None)

    def _held_at(self, now: Instant) -> int:
        """The last time at which changed counters still had their old values. Nothing changes while no server runs."""
        usual = now - seconds(SAMPLE_EVERY_SECONDS)
        return usual if self._looked_at is None else min(self._looked_at, now - 1)


class Changes(Generic[Key]):
    """The rows to add for changed figures: of queues and groups for rates, or with ``by_minute`` of queues and tenants for charts."""

    def __init__(
        self,
        session: Session,
        newest: str,
        known: dict[Key, Noted],
        held_at: int,
        now: Instant,
        by_minute: bool = False,
    ) -> None:
        self._session, self._newest, self._now, self._by_minute = session, newest, now, by_minute
        self._known = known
        # By the minute it is in an earlier minute, as the row of this minute will have the change.
        self._held_at = min(held_at, now // MINUTE * MINUTE - 1) if by_minute else held_at
        self.rows: list[tuple[int | str, ...]] = []
        self.newest: dict[Key, Noted] = {}

    def see(self, key: Key, figures: Figures, created_at: int | None = None) -> None:
        """Add a row if the figures changed; with ``created_at`` also a row of zeros before a new queue or tenant."""
        last = _believed(self._known.get(key), self._now)
        if last is None and (row := self._session.row(SQL[self._newest], key)) is not None:
            last = Noted(row[0], row[1:])
        if last is not None and _says_enough(last, figures, self._now):
            self.newest[key] = last
            return
        if last is None and created_at is not None and is_new(created_at, self._now):
            self.rows.append((*key, *birth(created_at, self._now), 0, 0, 0, 0, 0))
        if last is not None and last.figures != figures and self._held_at > last.at:
            self._add(key, self._held_at, last.figures)
        self._add(key, self._now, figures)
        self.newest[key] = Noted(self._now, figures)

    def _add(self, key: Key, at: int, figures: Figures) -> None:
        self.rows.append((*key, at // MINUTE, at, *figures) if self._by_minute else (*key, at, *figures))


def _believed(noted: Noted | None, now: Instant) -> Noted | None:
    """The row, unless it is in the future: then the clock was put back since, and the row does not count."""
    return None if noted is None or noted.at > now else noted


def _says_enough(last: Noted, figures: Figures, now: Instant) -> bool:
    return last.figures == figures and 0 <= now - last.at < seconds(KEYFRAME_SECONDS)


def _together(one: TenantSums | None, other: TenantSums) -> TenantSums:
    if one is None:
        return other
    sums = tuple(a + b for a, b in zip(one.figures, other.figures, strict=True))
    return TenantSums(sums, min(one.created_at, other.created_at))


def _has_more(seen: SamplingStep) -> bool:
    return seen.last_id is not None
