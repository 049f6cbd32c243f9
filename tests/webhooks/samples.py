"""Webhooks as their senders post them, written from the senders' public documentation and shortened where nothing reads it."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def pagerduty(
    event_id: str = "01BZCBL0FM0000000000000000",
    kind: str = "incident.triggered",
    incident: str = "PGR0VU2",
    urgency: str = "high",
    at: str = "2026-03-01T14:30:00.000Z",
) -> Json:
    """An event of PagerDuty's v3 webhooks."""
    person = {
        "html_url": "https://acme.pagerduty.com/users/PTUXL6G",
        "id": "PTUXL6G",
        "self": "https://api.pagerduty.com/users/PTUXL6G",
        "summary": "User 123",
        "type": "user_reference",
    }
    service = {
        "html_url": "https://acme.pagerduty.com/services/PF9KMXH",
        "id": "PF9KMXH",
        "self": "https://api.pagerduty.com/services/PF9KMXH",
        "summary": "API Service",
        "type": "service_reference",
    }
    data = {
        "id": incident,
        "type": "incident",
        "self": f"https://api.pagerduty.com/incidents/{incident}",
        "html_url": f"https://acme.pagerduty.com/incidents/{incident}",
        "number": 2,
        "status": "triggered",
        "incident_key": "d3640fbd41094207a1c11e58e46b1662",
        "created_at": at,
        "title": "A little bump in the road",
        "service": service,
        "assignees": [person],
        "escalation_policy": {"id": "PUS0KTE", "summary": "Default", "type": "escalation_policy_reference"},
        "teams": [],
        "priority": {"id": "PSO75BM", "summary": "P1", "type": "priority_reference"},
        "urgency": urgency,
        "conference_bridge": None,
        "resolve_reason": None,
    }
    return {
        "event": {
            "id": event_id,
            "event_type": kind,
            "resource_type": "incident",
            "occurred_at": at,
            "agent": person,
            "client": {"name": "PagerDuty"},
            "data": data,
        }
    }


def github_ping() -> Json:
    """What GitHub sends when a webhook is made."""
    return {
        "zen": "Design for failure.",
        "hook_id": 109948940,
        "hook": {"type": "Organization", "id": 109948940, "name": "web", "active": True, "events": ["*"]},
        "sender": {"login": "octocat", "id": 583231, "type": "User", "site_admin": False},
    }


def github_push() -> Json:
    """Two commits to main."""
    return {
        "ref": "refs/heads/main",
        "before": "6113728f27ae82c7b1a177c8d03f9e96e0adf246",
        "after": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c",
        "repository": {"id": 186853002, "name": "Hello-World", "full_name": "Codertocat/Hello-World", "private": False},
        "pusher": {"name": "Codertocat", "email": "21031067+Codertocat@users.noreply.github.com"},
        "sender": {"login": "Codertocat", "id": 21031067, "type": "User"},
        "created": False,
        "deleted": False,
        "forced": False,
        "base_ref": None,
        "compare": "https://github.com/Codertocat/Hello-World/compare/6113728f27ae...0d1a26e67d8f",
        "commits": [
            {
                "id": "0d1a26e67d8f5eaf1f6ba5c57fc3c7d91ac0fd1c",
                "message": "Mend the façade",
                "timestamp": "2026-03-01T15:20:41-08:00",
                "author": {"name": "Zoë Müller", "email": "zoe@example.com", "username": "zoe"},
                "added": [],
                "removed": [],
                "modified": ["README.md"],
            }
        ],
    }


def github_pull_request(number: int = 2, action: str = "opened", merged: bool = False) -> Json:
    """A pull request that was opened, closed or merged."""
    return {
        "action": action,
        "number": number,
        "pull_request": {
            "url": f"https://api.github.com/repos/Codertocat/Hello-World/pulls/{number}",
            "id": 279147437,
            "number": number,
            "state": "closed" if action == "closed" else "open",
            "title": "Update the README with new information.",
            "user": {"login": "Codertocat", "id": 21031067, "type": "User"},
            "body": None,
            "merged": merged,
            "draft": False,
        },
        "repository": {"id": 186853002, "name": "Hello-World", "full_name": "Codertocat/Hello-World", "private": False},
        "sender": {"login": "Codertocat", "id": 21031067, "type": "User"},
    }


def stripe(event_id: str = "evt_3MtwBwLkdIwHu7ix28a3tqPa", kind: str = "payment_intent.succeeded") -> Json:
    """An event of Stripe about a payment."""
    return {
        "id": event_id,
        "object": "event",
        "api_version": "2025-03-31.basil",
        "created": 1772373000,
        "data": {
            "object": {
                "id": "pi_3MtwBwLkdIwHu7ix28a3tqPa",
                "object": "payment_intent",
                "amount": 2000,
                "amount_received": 2000,
                "currency": "usd",
                "customer": "cus_NeZwdNtLEOXuvB",
                "livemode": False,
                "metadata": {},
                "status": "succeeded",
            }
        },
        "livemode": False,
        "pending_webhooks": 4,
        "request": {"id": "req_Kt8n1GBZiEGqIV", "idempotency_key": "9b2f2b49-2b4a-4e0f-9d0a-3a2bfb1d9a10"},
        "type": kind,
    }


def slack_mention(event_id: str = "Ev08MFMKH6", text: str = "<@U0SKEPBOT> is it urgent?") -> Json:
    """Somebody named the bot in a channel."""
    return {
        "token": "ZZZZZZWSxiZZZ2yIvs3peJ",
        "team_id": "T123ABC456",
        "api_app_id": "A123ABC456",
        "event": {
            "type": "app_mention",
            "user": "U123ABC456",
            "text": text,
            "ts": "1772373000.000200",
            "channel": "C123ABC456",
            "event_ts": "1772373000.000200",
        },
        "type": "event_callback",
        "event_id": event_id,
        "event_time": 1772373000,
        "authed_users": ["U0LAN0Z89"],
    }


def slack_challenge() -> Json:
    """What Slack asks when it is given an address."""
    return {
        "token": "Jhj5dZrVaK7ZwHHjRyZWjbDl",
        "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P",
        "type": "url_verification",
    }
