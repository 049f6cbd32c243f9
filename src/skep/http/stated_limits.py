"""The limits that OpenAPI states, taken from the checks themselves, so that both agree.

A rule is a piece of JSON Schema. Names of requests have theirs by the word that they go by (`queue`, `partition`) wherever they stand, in a
path, a query or a body; what differs in one place is listed under that place. Limits that are settings are those of the server
whose document it is. `tests/http/test_stated_limits.py` holds that nothing of a request is left out without a reason.
"""

from __future__ import annotations

from typing import Any

from skep.access.keys import NAME_CHARACTERS as KEY_NAME_CHARACTERS
from skep.access.keys import RATE_MAX
from skep.access.scopes import GRANTS_MAX, PATTERN_CHARACTERS, PATTERNS_MAX
from skep.config import Limits
from skep.engine.history import EVENTS_AT_ONCE
from skep.engine.push.buffer import BUFFER_MS_MAX
from skep.engine.record_checks import EVENTS_MAX, URL_CHARACTERS, VERSION_MAX, WINDOW_SECONDS_MAX
from skep.engine.staging import ATTEMPTS_MAX, MESSAGES_MAX, NUMBER_MAX
from skep.engine.validate import (
    CONTENT_TYPE_CHARACTERS,
    FIT_PATTERN,
    NAME_CHARACTERS,
    NO_NAMES,
    PARTITIONS_MAX,
    SEQ_MAX,
    STORABLE_PATTERN,
    TRANSACTION_ID_CHARACTERS,
)
from skep.http.request.paging import PAGE_MAX
from skep.http.request.parameters import (
    COMPRESSIONS,
    POSITION_MAX,
    POSITION_PATTERN,
    PREVIEW_BYTES_MAX,
    SEALED,
    SECONDS_MAX,
)
from skep.http.scheduled import PLACE_PATTERN
from skep.model import SEALED_TYPE
from skep.model.queue_settings import LEASE_SECONDS_MAX, PRIORITY_MAX, PRIORITY_MIN, SETTINGS, Setting, SettingKind
from skep.model.scheduled import MARK_MAX
from skep.wire import leases
from skep.wire.log import MOST_QUEUES

Json = dict[str, Any]

UUID: Json = {"format": "uuid"}
SEQ_OR_ID: Json = {"anyOf": [UUID, {"pattern": f"^{POSITION_PATTERN}$"}]}
FIT: Json = {"minLength": 1, "maxLength": NAME_CHARACTERS, "pattern": FIT_PATTERN}
NAME: Json = {**FIT, "not": {"enum": list(NO_NAMES)}}
TRANSACTION_ID: Json = {"minLength": 1, "maxLength": TRANSACTION_ID_CHARACTERS, "pattern": FIT_PATTERN}
CONTENT_TYPE: Json = {
    "minLength": 1, "maxLength": CONTENT_TYPE_CHARACTERS, "pattern": FIT_PATTERN, "not": {"enum": [SEALED_TYPE]},
}  # fmt: skip
SOUGHT: Json = {"pattern": STORABLE_PATTERN}
"""The rule of a text that is only searched for: any text that a store can hold."""
URL: Json = {"minLength": 1, "maxLength": URL_CHARACTERS, "pattern": STORABLE_PATTERN}
LEASE_ID: Json = {"pattern": leases.PATTERN, "maxLength": leases.MAX_CHARACTERS}
OBJECT: Json = {"type": "object"}
PATTERN: Json = {"minLength": 1, "maxLength": PATTERN_CHARACTERS, "pattern": FIT_PATTERN}

COUNT: Json = {"minimum": 1, "maximum": POSITION_MAX}
POSITION: Json = {"minimum": 0, "maximum": POSITION_MAX}
SEQ: Json = {"minimum": 0, "maximum": SEQ_MAX}
_FORGOTTEN: Json = {"type": "integer", "minimum": 1, "maximum": SEQ_MAX}
_FORGOTTEN_RANGE: Json = {
    "type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [_FORGOTTEN, _FORGOTTEN], "items": False,
}  # fmt: skip
NUMBER: Json = {"minimum": 0, "maximum": NUMBER_MAX}
ANY_SECONDS: Json = {"minimum": 0, "maximum": SECONDS_MAX}
LEASE_SECONDS: Json = {"exclusiveMinimum": 0, "maximum": float(LEASE_SECONDS_MAX)}


class Stated:
    """The limits of one server, whose settings are a part of them."""

    def __init__(self, limits: Limits) -> None:
        self._words = {**WORDS, **_words(limits)}
        self._places = {**PLACES, **_places(limits)}

    def rule(self, place: str, name: str, kind: str | None) -> Json | None:
        """The rule of a parameter of a path, or of a field of a struct, that is of this type of JSON; None when there is none."""
        found = self._places.get(f"{place} {name}")
        return self._words.get((name, "number" if kind == "integer" else kind)) if found is None else found

    def write(self, place: str, name: str, schema: Json) -> None:
        """Write the limits of a value into its schema."""
        for part in schema.get("anyOf", [schema]):
            if part.get("type") != "null":
                _write(part, self.rule(place, name, part.get("type")) or {})


def _write(schema: Json, rule: Json) -> None:
    schema.update({name: limit for name, limit in rule.items() if name != "items"})
    if "items" in rule:
        schema["items"].update(rule["items"])


def many(most: int, least: int = 1) -> Json:
    """The rule of a list."""
    return {"minItems": least, "maxItems": most}


def up_to(most: float, least: int = 1) -> Json:
    """The rule of a number."""
    return {"minimum": least, "maximum": most}


def of_setting(setting: Setting) -> Json:
    """The rule of a queue's setting; empty when its type is the whole rule."""
    match setting.kind:
        case SettingKind.WHOLE:
            return up_to(setting.most, setting.least)
        case SettingKind.SECONDS:
            least = "exclusiveMinimum" if setting.above_zero else "minimum"
            return {least: 0, "maximum": float(setting.most)}
        case SettingKind.NAME:
            return NAME
        case SettingKind.SWITCH | SettingKind.ORDERING:
            return {}


_TEXTS: dict[str, Json] = {
    "queue": NAME, "consumerGroup": NAME, "group": NAME, "namespace": NAME, "task": NAME, "tenant": NAME, "tenant_id": {**NAME, "minLength": 0},
    "run": NAME, "query": NAME, "entity": NAME, "id": NAME, "type": NAME, "name": NAME, "scope": FIT, "key": FIT,
    "partition": FIT, "transactionId": TRANSACTION_ID, "contentType": CONTENT_TYPE, "url": URL,
    "traceId": UUID, "messageId": UUID, "cause": UUID, "operation": UUID, "lease": LEASE_ID, "leaseId": LEASE_ID,
    "after": SOUGHT, "subscriptionFrom": {"anyOf": [{"format": "date-time"}, {"pattern": f"^{POSITION_PATTERN}$"}]},
}  # fmt: skip
_NUMBERS: dict[str, Json] = {
    "after": POSITION, "seq": SEQ, "throughSeq": SEQ, "preview": up_to(PREVIEW_BYTES_MAX, 0), "limit": up_to(PAGE_MAX),
    "expiringWithin": ANY_SECONDS, "olderThan": ANY_SECONDS, "delaySeconds": ANY_SECONDS, "leaseSeconds": LEASE_SECONDS,
    "partitions": up_to(PARTITIONS_MAX, 0), "priority": up_to(PRIORITY_MAX, PRIORITY_MIN),
    "epoch": NUMBER, "partition": NUMBER, "attempt": NUMBER, "chunk": NUMBER, "from": POSITION, "to": POSITION,
    "until": POSITION, "maxBytes": COUNT,
}  # fmt: skip
WORDS: dict[tuple[str, str | None], Json] = {
    **{(name, "string"): rule for name, rule in _TEXTS.items()},
    **{(name, "number"): rule for name, rule in _NUMBERS.items()},
    ("ids", "array"): {"items": UUID},
    ("seqs", "array"): {"items": SEQ},
}
"""Rules by word and type: the same for a parameter and for a field."""

PLACES: dict[str, Json] = {
    # Texts that are only searched for.
    "/api/v1/operations partition": SOUGHT,
    "ForgetRequest partition": SOUGHT,
    "ForgetRequest transactionId": SOUGHT,
    "ForgetRequest log": POSITION,
    "ForgetRequest seqs": {"items": {"anyOf": [_FORGOTTEN, _FORGOTTEN_RANGE]}},
    "/api/v1/log/{queue} partition": {"items": SOUGHT},
    "/api/v1/messages partition": SOUGHT,
    "/api/v1/messages consumerGroup": SOUGHT,
    "/api/v1/messages transactionId": SOUGHT,
    "/api/v1/messages/{partition}/{transactionId} partition": SOUGHT,
    "/api/v1/messages/{partition}/{transactionId} transactionId": SOUGHT,
    "/api/v1/traces/by-name name": SOUGHT,
    **{
        f"{place} {name}": SOUGHT
        for place in ("/api/v1/dlq", "/api/v1/dlq/replays", "DeadLetterSelection")
        for name in ("sourceQueue", "partition", "consumerGroup", "error")
    },
    **{
        f"{place} {name}": SOUGHT
        for place in ("/api/v1/scheduled", "ScheduledSelection", "ScheduledMove")
        for name in ("partition", "transactionId")
    },
    # Other things of the same name.
    "/api/v1/log/{queue} limit": COUNT,
    "/api/v1/log/{queue} compression": {"enum": list(COMPRESSIONS)},
    "/api/v1/log/{queue} sealed": {"enum": list(SEALED)},
    "/api/v1/tables/{table} limit": COUNT,
    "/api/v1/scheduled after": {"pattern": PLACE_PATTERN},
    "/api/v1/keys/{key} key": {},
    "/admin/queues/{name}/dlq/{id}/replay id": UUID,
    "/admin/queues/{name}/dlq/{id} id": UUID,
    "/api/v1/dlq/{queue}/{letter} letter": SEQ_OR_ID,
    "/api/v1/dlq/{queue}/{letter}/replay letter": SEQ_OR_ID,
    # Fields.
    **{f"QueueChanges {setting.name}": of_setting(setting) for setting in SETTINGS.values()},
    "Attempt messages": up_to(MESSAGES_MAX, 0),
    "PublishRequest attempts": many(ATTEMPTS_MAX, 0),
    "DeadLetterSelection upToSeq": SEQ,
    "LogsBoundsRequest queues": {**many(MOST_QUEUES), "items": NAME},
    "LogsBoundsRequest from": {"propertyNames": NAME, "additionalProperties": {"type": "integer", **SEQ}},
    "ProgressOfMany seqs": {
        "minProperties": 1,
        "maxProperties": MOST_QUEUES,
        "propertyNames": NAME,
        "additionalProperties": {"type": "integer", **SEQ},
    },
    "UnfitMessage seq": up_to(SEQ_MAX),
    "EffectItem version": up_to(VERSION_MAX, 0),
    "EffectItem events": many(EVENTS_MAX),
    "EffectItem state": OBJECT,
    "EventItem data": OBJECT,
    "ReceiptItem windowSeconds": {"exclusiveMinimum": 0, "maximum": WINDOW_SECONDS_MAX},
    "EndpointReport threshold": up_to(PARTITIONS_MAX),
    "EndpointReport openSeconds": LEASE_SECONDS,
    "ScheduledSelection mark": up_to(MARK_MAX, 0),
    "ScheduledMove mark": up_to(MARK_MAX, 0),
    "PushRequest bufferMs": up_to(BUFFER_MS_MAX, 0),
    "TellRequest events": many(EVENTS_AT_ONCE),
    "KeyRequest name": {"minLength": 1, "maxLength": KEY_NAME_CHARACTERS, "pattern": FIT_PATTERN},
    "KeyRequest grants": many(GRANTS_MAX),
    "KeyRequest requestsPerSecond": {"exclusiveMinimum": 0, "maximum": RATE_MAX},
    "GrantItem verbs": {"minItems": 1},
    "GrantItem tenants": {**many(PATTERNS_MAX), "items": PATTERN},
    "GrantItem queues": {**many(PATTERNS_MAX), "items": PATTERN},
    **{f"{struct} name": {} for struct in ("RunReport", "RunStage", "RunCheck")},
}
"""Rules of a path and a parameter, or of a struct and a field, where those by word do not hold."""


def _words(limits: Limits) -> dict[tuple[str, str | None], Json]:
    """Rules by word that are settings of the server."""
    return {("batch", "number"): up_to(limits.pop_messages), ("timeout", "number"): up_to(limits.wait_seconds, 0)}


def _places(limits: Limits) -> dict[str, Json]:
    """Rules of places that are settings of the server."""
    return {
        "PushRequest items": many(limits.push_messages),
        "PushRequest bufferMax": up_to(limits.push_messages),
        "AckBatchRequest acknowledgments": many(limits.settlements),
        "ExtendBatchRequest leaseIds": {**many(limits.settlements), "items": LEASE_ID},
        "TransactionRequest acknowledgments": many(limits.settlements, 0),
        "TransactionRequest items": many(limits.push_messages, 0),
        "TransactionRequest effects": many(limits.settlements, 0),
        "TransactionRequest receipts": many(limits.settlements, 0),
        "EntitiesReadRequest entities": many(limits.settlements, 0),
        "EntitiesReadRequest receipts": many(limits.settlements, 0),
        "BuryRequest letters": many(limits.page),
        "ScheduledSelection ids": {"maxItems": limits.page, "items": UUID},
        "ScheduledMove ids": {"maxItems": limits.page, "items": UUID},
    }


ANSWERED_IDS = {
    "EventView cause",
    *(
        f"{struct} id"
        for struct in (
            "BrowsedMessage", "MessageStory", "DeadLetterView", "PoppedMessage", "LoggedMessage", "ScheduledView", "ChangedMessage",
            "OperationView", "ReplayedMessage", "ReplayView", "AdminDeadLetter",
        )
    ),
}  # fmt: skip
"""UUIDs of answers whose word also means something else."""
ANSWERED: dict[str, Json] = {
    "traceId": UUID, "trace_id": UUID, "messageId": UUID, "message_id": UUID, "new_message_id": UUID, "operationId": UUID,
    "deadId": UUID, "leaseId": LEASE_ID,
}  # fmt: skip


def write_answered(struct: str, name: str, schema: Json) -> None:
    """Write what an id of an answer looks like into its schema."""
    rule = UUID if f"{struct} {name}" in ANSWERED_IDS else ANSWERED.get(name)
    for part in schema.get("anyOf", [schema]):
        if rule is not None and part.get("type") == "string":
            part.update(rule)
