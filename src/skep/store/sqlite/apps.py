"""Applied specs, and the endpoints that messages are delivered to: few rows, seldom changed."""

from __future__ import annotations

import msgspec

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model.record import AppRecord, Endpoint, Report
from skep.store.rules import after_report
from skep.store.sqlite.session import Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "apps")


def put_app(session: Session, name: str, document: bytes, now: Instant, expected: int | None = None) -> AppRecord:
    """Store a spec under its name."""
    if expected is not None and expected != apps_revision(session):
        raise SkepError(Code.STORE_BUSY, "another app was applied at this very moment: look again, and try again")
    revision = _next_revision(session)
    session.db.execute(SQL["put"], (name, revision, now, document))
    return AppRecord(name, document, revision, now)


def delete_app(session: Session, name: str) -> bool:
    """Forget a spec."""
    session.db.execute(SQL["delete"], (name,))
    if not session.db.changes():
        return False
    _next_revision(session)
    return True


def _next_revision(session: Session) -> int:
    row = session.row(SQL["next_revision"])
    assert row is not None
    return int(row[0])


def apps(session: Session) -> list[AppRecord]:
    """All specs by name."""
    return [AppRecord(*row) for row in session.rows(SQL["list"])]


def apps_revision(session: Session) -> int:
    """How many changes of apps there were."""
    row = session.row(SQL["revision"])
    assert row is not None
    return int(row[0])


def report_endpoint(
    session: Session,
    tenant: str,
    url: str,
    report: Report,
    now: Instant,
    *,
    threshold: int,
    open_seconds: float,
    reason: str | None = None,
) -> Endpoint:
    """Note how a delivery went, and what follows for the next ones."""
    row = session.row(SQL["find_endpoint"], (tenant, url))
    known = None if row is None else _endpoint(row)
    fresh = Endpoint(url=url, tenant=tenant, updated_at=now)
    endpoint = after_report(known, fresh, report, threshold, open_seconds, reason)
    if endpoint is not known and endpoint is not fresh:
        session.db.execute(SQL["save_endpoint"], msgspec.structs.astuple(endpoint))
    return endpoint


def _endpoint(row: Row) -> Endpoint:
    return Endpoint(**dict(zip(Endpoint.__struct_fields__, row, strict=True)))


def endpoints(session: Session, tenant: str, after: str = "", limit: int = 100) -> list[Endpoint]:
    """Endpoints with a history, by URL."""
    return [_endpoint(row) for row in session.rows(SQL["list_endpoints"], (tenant, after, limit))]


def reset_endpoint(session: Session, tenant: str, url: str) -> bool:
    """Forget what is known of an endpoint."""
    session.db.execute(SQL["delete_endpoint"], (tenant, url))
    return session.db.changes() == 1
