"""The examples work as their comments say, from the queue on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from skep.model import DeadReason
from tests.worker.place import Place

CHAT_SECRET = "whsec_bm90IGEgdmVyeSBnb29kIHNlY3JldCwgYnV0IGxvbmc="
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.skep").read_text(encoding="utf-8")


def alert(kind: str, incident: str = "PGR0VU2", urgency: str = "high") -> dict[str, Any]:
    data = {"id": incident, "title": "db down", "urgency": urgency, "service": {"summary": "api"}}
    event = {"id": "01EVT", "event_type": kind, "occurred_at": "2026-03-01T09:59:59Z", "data": data}
    return {"payload": {"event": event}, "headers": {}, "source_ip": "192.0.2.1", "received_at": "2026-03-01T10:00:00Z"}


def state(place: Place, type_: str, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(place.client.entity(type_, id_).state)
    return found


async def test_incidents_are_opened_changed_and_resolved_in_order_and_wake_people_up_once(place: Place) -> None:
    app = place.app(example("incidents"))
    place.client.pause("Pages")  # nobody is told by this test
    kinds = ["incident.triggered", "incident.acknowledged", "incident.resolved", "incident.acknowledged"]
    for kind in kinds:
        place.client.push("Alerts", alert(kind), partition="PGR0VU2")
    place.client.push("Alerts", alert("incident.triggered", "PGR0VU3", "low"), partition="PGR0VU3")
    await place.work(app, at_least=5, environment={"CHAT_WEBHOOK_SECRET": CHAT_SECRET})
    first = state(place, "Incident", "PGR0VU2")
    assert (first["status"], first["events"], first["title"], first["service"]) == ("resolved", 3, "db down", "api")
    assert first["opened_at"] == "2026-03-01T09:59:59Z"
    assert state(place, "Incident", "PGR0VU3")["severity"] == "minor"
    assert place.payloads("Pages") == [{"incident_id": "PGR0VU2", "text": "incident: db down"}]
    # The late one was not let through.
    [letter] = place.dead("Alerts")
    assert (letter.queue, letter.reason, letter.attempts) == ("AlertsDead", DeadReason.REJECTED, 1)
    assert (letter.error or "").startswith("GUARD_REJECTED: the guard of Incident.Record does not hold for 'PGR0VU2'")


async def test_a_shop_ships_what_is_paid_and_sends_a_mail_for_each_change(place: Place) -> None:
    app = place.app(example("shop"))
    place.client.pause("Shipments")
    order = "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d"
    for status in ("placed", "paid"):
        place.client.push("Orders", {
            "order_id": order, "customer": "c-1", "status": status, "total_cents": 1000, "coupon": "TENOFF",
            "lines": [{"sku": "tea", "quantity": 2}, {"sku": "cup", "quantity": 0}], "placed_at": "2026-03-01T10:00:00Z",
        })  # fmt: skip
    environment = dict.fromkeys(("WAREHOUSE_SECRET", "WAREHOUSE_SECRET_OLD", "CHECKOUT_SECRET"), CHAT_SECRET)
    await place.work(app, at_least=4, environment=environment, tenants=[place.client.settings.tenant])
    assert state(place, "Order", order) == {
        "customer": "c-1", "status": "paid", "items": ["tea"], "total_cents": 900, "changes": 2
    }  # fmt: skip
    assert state(place, "Mail", "c-1") == {"sent": 2, "last_subject": "your order 0190a7c4 is paid"}
    [shipment] = place.payloads("Shipments")
    assert (shipment["parcels"], shipment["ship_by"]) == ([{"sku": "tea", "count": 2}], "2026-03-04T10:00:00Z")
    assert place.dead("Orders") == []
