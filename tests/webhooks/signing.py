"""Signs requests as their senders do, by hand and with nothing of ours."""

from __future__ import annotations

import base64
import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Headers = dict[str, str]

STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PRIVATE_KEY = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC_KEY = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="


def hexed(secret: str, content: bytes, algorithm: str = "sha256") -> str:
    """The HMAC in hexadecimal digits."""
    return hmac.new(secret.encode(), content, algorithm).hexdigest()


def plain(body: bytes, secret: str, header: str = "X-Signature") -> Headers:
    return {header: hexed(secret, body)}


def github(body: bytes, secret: str, delivery: str, event: str) -> Headers:
    return {
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Event": event,
        "X-Hub-Signature": "sha1=" + hexed(secret, body, "sha1"),
        "X-Hub-Signature-256": "sha256=" + hexed(secret, body),
        "User-Agent": "GitHub-Hookshot/044aadd",
    }


def pagerduty(body: bytes, *secrets: str) -> Headers:
    signatures = ",".join("v1=" + hexed(secret, body) for secret in secrets)
    return {
        "X-PagerDuty-Signature": signatures,
        "X-Webhook-Subscription": "PGFLZFG",
        "User-Agent": "PagerDuty-Webhook/V3.0",
    }


def stripe(body: bytes, secret: str, at: int) -> Headers:
    return {"Stripe-Signature": f"t={at},v1={hexed(secret, b'%d.' % at + body)},v0={'0' * 64}"}


def slack(body: bytes, secret: str, at: int) -> Headers:
    signature = hexed(secret, b"v0:%d:" % at + body)
    return {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": str(at)}


def standard(body: bytes, secret: str, at: int, id_: str = "msg_1") -> Headers:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id_}.{at}.".encode() + body, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": id_, "webhook-timestamp": str(at), "webhook-signature": signature}


def standard_by_key(body: bytes, private: str, at: int, id_: str = "msg_1") -> Headers:
    key = Ed25519PrivateKey.from_private_bytes(base64.b64decode(private.removeprefix("whsk_"))[:32])
    signature = "v1a," + base64.b64encode(key.sign(f"{id_}.{at}.".encode() + body)).decode()
    return {"webhook-id": id_, "webhook-timestamp": str(at), "webhook-signature": signature}
