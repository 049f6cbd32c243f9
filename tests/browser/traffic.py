"""Traffic of a shop, so that pages have something to show: orders that are done, wait, are worked on, and died."""

from __future__ import annotations

from tests.http.driver import Api

ERRORS = (
    "TimeoutError: no answer from payments.internal:8443 after 30.0 s",
    "ValueError: amount -{n} of order {n} is negative",
    "KeyError: 'customer_{n}'",
)


def shop(api: Api) -> None:
    """Four queues in four states."""
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"namespace": "shop", "max_attempts": 1}})
    api.post("/api/v1/configure", {"queue": "emails", "settings": {"namespace": "shop", "max_depth": 20}})
    api.post("/api/v1/configure", {"queue": "invoices", "settings": {"namespace": "billing", "paused": True}})
    for n in range(40):
        items = [{"queue": "orders", "payload": {"order": n, "amount": n * 10}, "partition": f"customer-{n % 7}"}]
        api.post("/api/v1/push", {"items": items})
    for message in api.pop("orders", 20):
        n = message["seq"]
        if n % 3 == 0:
            api.ack(message, "failed", error=ERRORS[n % 2].format(n=n))
        else:
            api.ack(message)
    api.pop("orders", 4)
    api.push("emails", *({"to": f"c{n}@example.com"} for n in range(19)))
    api.push("invoices", *({"invoice": n} for n in range(12)))
    api.pop("emails", 3, "&consumerGroup=mailer")
