"""Why a request that fits its schema may still be refused with 422: what JSON Schema cannot say, each with a request that shows it.

The list is short on purpose. What a schema can say belongs into `skep.http.stated_limits`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from skep.errors import Code
from skep.model import Token
from skep.wire.leases import LeaseName, lease_id

LEASE = lease_id(LeaseName(Token(bytes(16)), "unsayable", "q", "g", "p"))
EVENT = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t"}


class Example(NamedTuple):
    """A request that fits its schema, and is refused."""

    method: str
    path: str
    body: Any = None
    tenant: str = "unsayable"
    kind: str = "application/json"


class Reason(NamedTuple):
    """What a schema cannot say, the codes and texts by which it is told, and requests that show it."""

    why: str
    codes: tuple[Code, ...]
    text: str
    examples: tuple[Example, ...]

    def fits(self, code: str, message: str) -> bool:
        """Whether this is why a request was refused."""
        return code in self.codes and re.search(self.text, message.removesuffix("."), re.IGNORECASE) is not None


def post(path: str, body: Any = None) -> Example:
    """A request with a body of JSON."""
    return Example("POST", path, body)


def get(path: str) -> Example:
    """A request without a body."""
    return Example("GET", path)


REASONS = {
    "fraction": Reason(
        "JSON Schema takes 1.0 for an integer, and Skep does not",
        (Code.INVALID_REQUEST, Code.INVALID_SETTING), r"xpected `int( \| null)?`, got `float`",
        (
            post("/api/v1/consumer-groups/g/progress", {"queue": "q", "seq": 1.0}),
            post("/api/v1/configure", {"queue": "q", "settings": {"max_depth": 1.0}}),
        ),
    ),
    "lease id": Reason(
        "a lease id has parts of its own inside, which only its maker can write",
        (Code.INVALID_REQUEST,), "^that is no lease id",
        (post("/api/v1/lease/lcQQ/release"), post("/api/v1/ack", {"leaseId": "lcQQ", "seq": 1})),
    ),
    "together": Reason(
        "parameters of a query that go together, or not, or of which one is needed: each has its own schema",
        (Code.INVALID_REQUEST,),
        "^give subscriptionMode or|^a pop over several queues names|go together$|is for an Arrow stream|^the parameter queue is missing"
        "|^after must be a number",
        (
            get("/api/v1/pop/queue/q?subscriptionMode=new&subscriptionFrom=1"),
            get("/api/v1/pop"),
            get("/api/v1/log/q/bounds?after=1"),
            get("/api/v1/log/q/bounds?from=1"),
            Example("DELETE", "/api/v1/staging/job/1?attempt=1"),
            get("/api/v1/log/q?compression=lz4"),
            get("/api/v1/tables/leases"),
            get("/api/v1/tables/leases?queue=q&after=a"),
        ),
    ),
    "other fields": Reason(
        "what a field of a body may be hangs on the others",
        (Code.INVALID_REQUEST, Code.INVALID_PAYLOAD),
        "^with a contentType the payload is|^give deliverAt or delaySeconds|^within a transaction a message has a deliverAt|^'time' goes with to"
        "|^name a queue, or say allQueues|^a grant says a role or verbs|^retryAt goes with|^a transaction settles, pushes|^name each partition once"
        "|^the number of entities and receipts|^a lease is of the group|^two items label queue|^the path names|^'from' names"
        "|^a range of seqs begins",
        (
            post("/api/v1/push", {"items": [{"queue": "q", "payload": 1, "contentType": "text/plain"}]}),
            post("/api/v1/push", {"items": [{"queue": "q", "payload": 1, "deliverAt": "2027-01-01T00:00:00Z", "delaySeconds": 1}]}),
            post("/api/v1/transaction", {"items": [{"queue": "q", "payload": 1, "delaySeconds": 1}]}),
            post("/api/v1/consumer-groups/g/seek", {"queue": "q", "to": "time"}),
            post("/api/v1/encryption/shred", {}),
            post("/api/v1/keys", {"name": "k", "grants": [{}]}),
            post("/api/v1/ack", {"leaseId": LEASE, "seq": 1, "retryAt": "2027-01-01T00:00:00Z"}),
            post("/api/v1/transaction", {}),
            post("/api/v1/staging/job/1/publish", {"attempts": 2 * [{"partition": 0, "attempt": 0, "messages": 0}]}),
            post("/api/v1/entities/read", {}),
            post("/api/v1/ack/batch", {"acknowledgments": [{"leaseId": LEASE, "seq": 1}], "consumerGroup": "other"}),
            post("/api/v1/push", {"items": [{"queue": "new", "payload": 1, "task": task} for task in ("a", "b")]}),
            post("/api/v1/logs/bounds", {"queues": ["q"], "from": {"other": 1}, "maxBytes": 1}),
            Example("PUT", "/api/v1/apps/One", {"name": "Other"}),
            post("/api/v1/queues/q/forget", {"seqs": [[2, 1]]}),
        ),
    ),
    "characters": Reason(
        "patterns of all languages have no word for printable characters, and cannot count stars or the bytes of several names",
        (Code.INVALID_REQUEST, Code.INVALID_NAME),
        "printable characters$|^a pattern has at most|^the names of a key together have at most",
        (
            post("/api/v1/keys", {"name": "\u2028", "grants": [{"role": "admin"}]}),
            post("/api/v1/keys", {"name": "k", "grants": [{"role": "admin", "queues": ["\u2028"]}]}),
            post("/api/v1/keys", {"name": "k", "grants": [{"role": "admin", "queues": [9 * "*"]}]}),
            post("/api/v1/endpoints/reset", {"url": 1_000 * "🐝"}),
        ),
    ),
    "size": Reason(
        "JSON Schema knows neither bytes nor how deep a value is nested",
        (Code.INVALID_HEADERS, Code.INVALID_REQUEST), "^headers have at most|^JSON may be nested|nested too deeply$",
        (
            post("/api/v1/push", {"items": [{"queue": "q", "payload": 1, "headers": {"a": 20_000 * "a"}}]}),
        ),
    ),
    "now": Reason(
        "a schema knows no clock, and a date-time has no range: nothing is to come before 1970",
        (Code.INVALID_TIME,), "^a key expires in the future|is out of range$|needs a retry_at within range$",
        (
            post("/api/v1/push", {"items": [{"queue": "q", "payload": 1, "deliverAt": "1901-01-01T00:00:00Z"}]}),
            post("/api/v1/scheduled/move", {"queue": "q", "deliverAt": "1901-01-01T00:00:00Z"}),
            post("/api/v1/consumer-groups/g/seek", {"queue": "q", "to": "time", "time": "1901-01-01T00:00:00Z"}),
            post("/api/v1/ack", {"leaseId": LEASE, "seq": 1, "status": "retry", "retryAt": "1901-01-01T00:00:00Z"}),
            post("/api/v1/keys", {"name": "k", "grants": [{"role": "admin"}], "expiresAt": "2020-01-01T00:00:00Z"}),
        ),
    ),
    "spec": Reason(
        "a spec has a language of its own, which says what is wrong with all of it",
        (Code.INVALID_SPEC,), "",
        (Example("PUT", "/api/v1/apps/Odd", {"name": "Odd", "queues": {"Q": {"odd": 1}}}),),
    ),
    "what is there": Reason(
        "the queue's type, its encryption and its dead letters decide",
        (Code.MESSAGE_INVALID, Code.DEAD_LETTER_CHAIN, Code.DEAD_LETTER_SELF, Code.NOT_A_DEAD_LETTER_QUEUE, Code.NOT_ENCRYPTED), "",
        (
            Example("POST", "/api/v1/push", {"items": [{"queue": "UnsayablyTyped", "payload": "no number"}]}, "default"),
            post("/api/v1/configure", {"queue": "q", "settings": {"dead_letter_queue": "q"}}),
            post("/api/v1/dlq/purge", {"queue": "none kept"}),
        ),
    ),
    "how it stands": Reason(
        "the queue's messages, settings and labels decide",
        (Code.INVALID_REQUEST, Code.INVALID_SETTING),
        "^the log of .* ends at|^the queue .* is not encrypted|^the ordering of .* can change only|^queue .* has (no|the) (namespace|task)",
        (
            post("/api/v1/consumer-groups/g/progress", {"queue": "q", "seq": 1_000}),
            post("/api/v1/encryption/rotate", {"queue": "q"}),
            post("/api/v1/configure", {"queue": "q", "settings": {"ordering": "fifo"}}),
            post("/api/v1/push", {"items": [{"queue": "q", "payload": 1, "task": "other"}]}),
        ),
    ),
    "event": Reason(
        "events have rules of their own: for names of attributes, characters, times, and what goes together",
        (Code.INVALID_EVENT,), "",
        (Example("POST", "/api/v1/events/q", {**EVENT, "data": 1, "data_base64": "AA=="}, kind="application/cloudevents+json"),),
    ),
    "something must be chosen": Reason(
        "one of several fields must be given",
        (Code.INVALID_REQUEST,),
        "^Say which messages to forget",
        (post("/api/v1/queues/q/forget", {}),),
    ),
}  # fmt: skip


def reason_for(code: str, message: str) -> str | None:
    """The name of what a schema cannot say, when that is why a request was refused."""
    return next((name for name, reason in REASONS.items() if reason.fits(code, message)), None)
