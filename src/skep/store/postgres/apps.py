"""Applied specs, and endpoints of deliveries: few rows, seldom changed."""

from __future__ import annotations

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model.record import AppRecord, DeliveryEndpoint, Report
from skep.store.postgres.connection import Connection
from skep.store.postgres.rows import struct_of
from skep.store.rules import after_report
from skep.store.statements import load_statements

SQL = load_statements(__package__, "apps")


async def put_app(
    connection: Connection, name: str, document: bytes, now: Instant, expected: int | None = None
) -> AppRecord:
    """Store a spec under its name."""
    revision = int(await connection.fetchval(SQL["lock_revision"]))
    if expected is not None and expected != revision:
        raise SkepError(Code.STORE_BUSY, "another app was applied at this very moment: look again, and try again")
    await connection.execute(SQL["set_revision"], revision + 1)
    await connection.execute(SQL["put"], name, document, revision + 1, now)
    return AppRecord(name, document, revision + 1, now)


async def delete_app(connection: Connection, name: str) -> bool:
    """Delete a spec."""
    revision = await connection.fetchval(SQL["lock_revision"])
    if await connection.fetchval(SQL["delete"], name) is None:
        return False
    await connection.execute(SQL["set_revision"], revision + 1)
    return True


async def apps(connection: Connection) -> list[AppRecord]:
    """All specs by name."""
    return [struct_of(AppRecord, row) for row in await connection.fetch(SQL["list"])]


async def apps_revision(connection: Connection) -> int:
    """How many changes of apps there were."""
    return int(await connection.fetchval(SQL["revision"]))


async def report_endpoint(
    connection: Connection,
    tenant: str,
    url: str,
    report: Report,
    now: Instant,
    *,
    threshold: int,
    open_seconds: float,
    reason: str | None = None,
) -> DeliveryEndpoint:
    """Note the outcome of a delivery, and update the circuit breaker of its endpoint."""
    if report is not Report.DELIVERED:
        await connection.execute(SQL["add_endpoint"], tenant, url, now)
    row = await connection.fetchrow(SQL["lock_endpoint"], tenant, url)
    known = None if row is None else struct_of(DeliveryEndpoint, row)
    fresh = DeliveryEndpoint(url=url, tenant=tenant, updated_at=now)
    endpoint = after_report(known, fresh, report, threshold, open_seconds, reason)
    if endpoint is not known and endpoint is not fresh:
        await connection.execute(
            SQL["save_endpoint"], tenant, url, endpoint.failures, endpoint.open_until, endpoint.stopped_at, endpoint.reason,
            endpoint.updated_at,
        )  # fmt: skip
    return endpoint


async def endpoints(connection: Connection, tenant: str, after: str = "", limit: int = 100) -> list[DeliveryEndpoint]:
    """Endpoints with a history, by URL."""
    return [
        struct_of(DeliveryEndpoint, row) for row in await connection.fetch(SQL["list_endpoints"], tenant, after, limit)
    ]


async def reset_endpoint(connection: Connection, tenant: str, url: str) -> bool:
    """Delete the state of an endpoint."""
    return await connection.fetchval(SQL["delete_endpoint"], tenant, url) is not None
