"""Send what a server tells of itself to a collector, where the setting `telemetry.otlp` is on. Elsewhere nothing of it is imported."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from skep.clock import Clock
from skep.config import ServerSettings
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.app import HttpApp
from skep.http.gauges import GaugeReader
from skep.ids import IdMint
from skep.observe.exposition import Exposition

if TYPE_CHECKING:  # the extra `otlp` need not be installed
    from skep.observe.otlp import Telemetry

PROTOCOL = "http/protobuf"
LAST_SECONDS = 1.0
"""How long a stop waits for the store's last figures."""

log = structlog.get_logger("skep.server")


def open_telemetry(settings: ServerSettings, clock: Clock) -> Telemetry | None:
    """What spans and metrics are sent by; None where they are not. INVALID_SETTING when that cannot be."""
    if not settings.telemetry.otlp or os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    for kind in ("", "TRACES_", "METRICS_"):
        variable = f"OTEL_EXPORTER_OTLP_{kind}PROTOCOL"
        protocol = os.environ.get(variable) or PROTOCOL
        if protocol != PROTOCOL:
            raise SkepError(
                Code.INVALID_SETTING,
                f"telemetry.otlp speaks {PROTOCOL}, and {variable} says {protocol!r}: set it to {PROTOCOL}, and the endpoint to that of HTTP, "
                "usually port 4318",
            )
    try:
        from skep.observe.otlp import Telemetry, endpoint
    except ModuleNotFoundError:
        raise SkepError(Code.INVALID_SETTING, "telemetry.otlp needs the extra: pip install 'skep[otlp]'") from None

    def tell(reason: str | None) -> None:
        if reason is None:
            log.info("the collector takes telemetry again")
        else:
            log.warning(
                "the collector takes no telemetry; the server goes on without", endpoint=endpoint(), reason=reason
            )

    try:
        return Telemetry(IdMint(clock).mint(), clock.now(), tell)
    except (ValueError, OSError) as error:
        raise SkepError(Code.INVALID_SETTING, f"a variable OTEL_… has a value that cannot be used: {error}") from None


@asynccontextmanager
async def sending(
    telemetry: Telemetry | None, app: HttpApp, engine: Engine, settings: ServerSettings
) -> AsyncIterator[None]:
    """Send metrics from time to time, and the last ones at the end."""
    if telemetry is None:
        yield
        return
    gauges = GaugeReader(engine, settings.http, app.answers)
    exposition = Exposition()

    async def send() -> None:
        if telemetry.sends_metrics:
            telemetry.send(exposition.families(app.meter, await gauges.read()), engine.now())

    async def repeat() -> None:
        while True:
            await asyncio.sleep(telemetry.interval_seconds)
            await send()

    repeating = asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        with contextlib.suppress(SkepError, TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                await send()
        await asyncio.to_thread(telemetry.stop)
