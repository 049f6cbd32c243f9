"""The headers that the message of a webhook keeps: one list, with reasons, for the server and for `spec check`.

A message has more readers than the request had: consumers, the dashboard, dead letters, the lake. So a message never gets
credentials, and gets addresses only when the spec asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from skep.spec.ir import Webhook

ALL = "*"
"""In `keep_headers`: all headers that are not likely to be secret."""

HEADERS_MAX = 64
"""The most kept headers of one request."""
HEADERS_BYTES_MAX = 8 * 1024
"""The most bytes of all kept headers, names and values. A header that does not fit is left out whole."""


class Reason(StrEnum):
    """Why a header is not kept."""

    CREDENTIAL = "it proves who somebody is"
    SIGNATURE = "it is a signature, which is verified and then of no use but to an attacker"
    OURS = "only the server writes it"
    GUESS = "it may hold a secret"
    ADDRESS = "it says where somebody is"
    PLUMBING = "it is about the connection, not the message"
    UNNAMED = "keep_headers does not name it"


NEVER: dict[str, Reason] = {
    "authorization": Reason.CREDENTIAL,
    "proxy-authorization": Reason.CREDENTIAL,
    "proxy-authenticate": Reason.CREDENTIAL,
    "www-authenticate": Reason.CREDENTIAL,
    "authentication-info": Reason.CREDENTIAL,
    "proxy-authentication-info": Reason.CREDENTIAL,
    "cookie": Reason.CREDENTIAL,
    "cookie2": Reason.CREDENTIAL,
    "set-cookie": Reason.CREDENTIAL,
    "x-hub-signature": Reason.SIGNATURE,
    "x-hub-signature-256": Reason.SIGNATURE,
    "x-pagerduty-signature": Reason.SIGNATURE,
    "stripe-signature": Reason.SIGNATURE,
    "x-slack-signature": Reason.SIGNATURE,
    "webhook-signature": Reason.SIGNATURE,
    "svix-signature": Reason.SIGNATURE,
    "skep-producer": Reason.OURS,
    "skep-tenant": Reason.OURS,
}
"""Headers that are not kept even when a spec names them."""
SECRET_WORDS: dict[str, Reason] = {
    "signature": Reason.SIGNATURE,
    "signatures": Reason.SIGNATURE,
    "hmac": Reason.SIGNATURE,
    "authorization": Reason.CREDENTIAL,
    "authentication": Reason.CREDENTIAL,
    "auth": Reason.CREDENTIAL,
    "cookie": Reason.CREDENTIAL,
    "credential": Reason.CREDENTIAL,
    "credentials": Reason.CREDENTIAL,
    "assertion": Reason.CREDENTIAL,
    "jwt": Reason.CREDENTIAL,
    "key": Reason.GUESS,
    "apikey": Reason.GUESS,
    "token": Reason.GUESS,
    "secret": Reason.GUESS,
    "password": Reason.GUESS,
    "passwd": Reason.GUESS,
    "session": Reason.GUESS,
    "csrf": Reason.GUESS,
    "xsrf": Reason.GUESS,
    "cert": Reason.GUESS,
    "oidc": Reason.GUESS,
    "principal": Reason.GUESS,
}
"""A header with one of these among the words of its name (`x-gitlab-token`, `x-api-key`) is kept only when a spec names it."""
HARMLESS = frozenset({"idempotency-key", "x-idempotency-key"})
"""Headers that are kept although their names have such a word."""
BY_NAME_OR_ALL: dict[str, Reason] = {
    "forwarded": Reason.ADDRESS,
    "x-original-forwarded-for": Reason.ADDRESS,
    "x-real-ip": Reason.ADDRESS,
    "x-client-ip": Reason.ADDRESS,
    "x-cluster-client-ip": Reason.ADDRESS,
    "x-envoy-external-address": Reason.ADDRESS,
    "x-appengine-user-ip": Reason.ADDRESS,
    "x-azure-clientip": Reason.ADDRESS,
    "x-azure-socketip": Reason.ADDRESS,
    "client-ip": Reason.ADDRESS,
    "true-client-ip": Reason.ADDRESS,
    "fastly-client-ip": Reason.ADDRESS,
    "fly-client-ip": Reason.ADDRESS,
    "cf-connecting-ip": Reason.ADDRESS,
    "cf-connecting-ipv6": Reason.ADDRESS,
    "cf-pseudo-ipv4": Reason.ADDRESS,
    "via": Reason.ADDRESS,
    "host": Reason.PLUMBING,
    "connection": Reason.PLUMBING,
    "proxy-connection": Reason.PLUMBING,
    "keep-alive": Reason.PLUMBING,
    "te": Reason.PLUMBING,
    "trailer": Reason.PLUMBING,
    "transfer-encoding": Reason.PLUMBING,
    "upgrade": Reason.PLUMBING,
    "expect": Reason.PLUMBING,
    "content-length": Reason.PLUMBING,
    "accept": Reason.PLUMBING,
    "accept-encoding": Reason.PLUMBING,
    "accept-charset": Reason.PLUMBING,
    "accept-language": Reason.PLUMBING,
    "cache-control": Reason.PLUMBING,
    "pragma": Reason.PLUMBING,
}
"""Headers that are kept when a spec names them, or names `*`. So are those that begin with `x-forwarded-`."""
_FORWARDED = "x-forwarded-"
_WORDS = re.compile(r"[-_.]")


class KeptHeaders:
    """The headers that a webhook keeps. Names are in lower case."""

    def __init__(self, names: Iterable[str] | None, own_signature: str | None = None) -> None:
        self._named = frozenset(name.lower() for name in names or ())
        self._all = ALL in self._named
        self._harmless = names is None
        self._own = own_signature.lower() if own_signature is not None else None

    def why_not(self, name: str) -> Reason | None:
        """Why a header is not kept; None when it is."""
        if name == self._own:
            return Reason.SIGNATURE
        if name in NEVER:
            return NEVER[name]
        if name in self._named:
            return None
        if not (self._all or self._harmless):
            return Reason.UNNAMED
        return secret_reason(name) or (_other_reason(name) if self._harmless else None)

    def may_name(self, name: str) -> bool:
        """Whether a header would be kept if the spec named it."""
        return name != self._own and name not in NEVER


def secret_reason(name: str) -> Reason | None:
    """Why a header may be secret, by the words of its name; None when no word says so."""
    if name in HARMLESS:
        return None
    return next((SECRET_WORDS[word] for word in _WORDS.split(name) if word in SECRET_WORDS), None)


def _other_reason(name: str) -> Reason | None:
    return Reason.ADDRESS if name.startswith(_FORWARDED) else BY_NAME_OR_ALL.get(name)


def kept_of(webhook: Webhook) -> KeptHeaders:
    """The headers that a webhook keeps: those it names, else the harmless ones."""
    return KeptHeaders(webhook.keep_headers, webhook.verify.header if webhook.verify is not None else None)
