"""Applied specs, and the endpoints that messages are delivered to: few rows, seldom changed."""

from __future__ import annotations

import msgspec

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model.record import AppRecord, DeliveryEndpoint, Report
from skep.store.rules import after_report
from skep.store.sqlite.session import Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "apps")


def put_app(session: Session, name: str, document: bytes, now: Instant, expected: int | None = None) -> AppRecord:
    """Store a spec. With ``expected``, STORE_BUSY when the revision of all apps is another by now."""
    if expected is not None and expected != apps_revision(session):
        raise SkepError(Code.STORE_BUSY, "another app was applied at this very moment: look again, and try again")
    revision = _next_revision(session)
    session.db.execute(SQL["put"], (name, revision, now, document))
    return AppRecord(name, document, revision, now)


def delete_app(session: Session, name: str) -> bool:
    """Delete a spec; False when there is none."""
    session.db.execute(SQL["delete"], (name,))
    if not session.db.changes():
        return False
    _next_revision(session)
    return True


def _next_revision(session: Session) -> int:
    return int(session.one(SQL["next_revision"])[0])


def apps(session: Session) -> list[AppRecord]:
    """All specs by name."""
    return [AppRecord(*row) for row in session.rows(SQL["list"])]


def apps_revision(session: Session) -> int:
    """A number that rises with each change of an app."""
    return int(session.one(SQL["revision"])[0])


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
) -> DeliveryEndpoint:
    """Note the outcome of a delivery; returns the endpoint's state."""
    row = session.row(SQL["find_endpoint"], (tenant, url))
    known = None if row is None else _endpoint(row)
    fresh = DeliveryEndpoint(url=url, tenant=tenant, updated_at=now)
    endpoint = after_report(known, fresh, report, threshold, open_seconds, reason)
    if endpoint is not known and endpoint is not fresh:
        session.db.execute(SQL["save_endpoint"], msgspec.structs.astuple(endpoint))
    return endpoint


def _endpoint(row: Row) -> DeliveryEndpoint:
    return DeliveryEndpoint(**dict(zip(DeliveryEndpoint.__struct_fields__, row, strict=True)))


def endpoints(session: Session, tenant: str, after: str = "", limit: int = 100) -> list[DeliveryEndpoint]:
    """Endpoints with failed deliveries, by URL."""
    return [_endpoint(row) for row in session.rows(SQL["list_endpoints"], (tenant, after, limit))]


def reset_endpoint(session: Session, tenant: str, url: str) -> bool:
    """Forget the failures of an endpoint; False when there are none."""
    session.db.execute(SQL["delete_endpoint"], (tenant, url))
    return session.db.changes() == 1
