"""Well-known senders: their signature headers, and the words for them in a spec."""

from __future__ import annotations

from skep.spec.ir import Algorithm, Encoding, Scheme, Verify

SIGNED_IDS = ("webhook-id", "svix-id")
"""The header with the id of Standard Webhooks, by its standard name and by Svix's. The signature covers it, so it identifies a duplicate."""

_PREFIXES = {"x-pagerduty-signature": (Scheme.PAGERDUTY, "v1="), "x-hub-signature-256": (Scheme.GITHUB, "sha256=")}
"""Headers with an HMAC of the body after a prefix. A plain `verify_hmac` with such a header means the header's scheme."""
_OTHER_SCHEMES = {
    "stripe-signature": "verify_stripe",
    "x-slack-signature": "verify_slack",
    "webhook-signature": "verify_standard_webhooks",
    "svix-signature": "verify_standard_webhooks",
    "x-hub-signature": "verify_github",
}
"""Headers whose signature is no HMAC-SHA256 of the body alone, which `verify_hmac` refuses, and the block for each."""


def effective_verify(verify: Verify) -> Verify:
    """How signatures are verified: as the spec says, or by the scheme of the header that a plain `verify_hmac` names.

    Specs may have `verify_hmac` with PagerDuty's header and no prefix, although PagerDuty signs with a prefix.
    """
    if verify.scheme is not Scheme.HMAC or verify.header is None:
        return verify
    scheme, prefix = _PREFIXES.get(verify.header.lower(), (Scheme.HMAC, ""))
    is_plain = verify.encoding is Encoding.HEX and verify.algorithm is Algorithm.SHA256
    if scheme is Scheme.HMAC or not is_plain or verify.prefix not in ("", prefix):
        return verify
    return Verify(scheme=scheme, secret_env=verify.secret_env)


def block_for(verify: Verify) -> str | None:
    """The block to write instead of a `verify_hmac` whose header belongs to a sender that signs in another way."""
    if verify.header is None:
        return None
    block = _OTHER_SCHEMES.get(verify.header.lower())
    own = verify.prefix or (block == "verify_github" and verify.algorithm is Algorithm.SHA1)
    return None if own else block
