"""Every error a caller can get, each with a stable code.

Nothing below the edge knows HTTP: an error carries its code, a sentence for a person, and details for a
program. ``retryable`` says whether the same call may succeed later without being changed. ``outlook`` says what that means for
a call that was accepted already and is brought in later (an operation, a spooled push): whether it waits, and for how long.
"""

from __future__ import annotations

import re
from enum import StrEnum

_WORD = re.compile(r"[a-z]+(?= |, |: |'s )(?! must be)")
"""A word that may begin with a capital, and no name of a parameter, setting, option or file that must stay as it is."""


class Code(StrEnum):
    """Stable names of what went wrong; they are part of the API."""

    QUEUE_FULL = "QUEUE_FULL"
    QUEUE_NOT_FOUND = "QUEUE_NOT_FOUND"
    QUEUE_EXISTS = "QUEUE_EXISTS"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    GROUP_NOT_FOUND = "GROUP_NOT_FOUND"
    GROUP_EXTERNAL = "GROUP_EXTERNAL"
    GROUP_NOT_EXTERNAL = "GROUP_NOT_EXTERNAL"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    MESSAGE_SETTLED = "MESSAGE_SETTLED"
    LOG_REPLACED = "LOG_REPLACED"
    EPOCH_PUBLISHED = "EPOCH_PUBLISHED"
    STAGING_INCOMPLETE = "STAGING_INCOMPLETE"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    BATCH_REFUSED = "BATCH_REFUSED"
    OPERATION_NOT_FOUND = "OPERATION_NOT_FOUND"
    OPERATION_NOT_PENDING = "OPERATION_NOT_PENDING"
    OPERATIONS_AHEAD = "OPERATIONS_AHEAD"
    STALE_LEASE = "STALE_LEASE"
    NOT_IN_LEASE = "NOT_IN_LEASE"
    DEAD_LETTER_CHAIN = "DEAD_LETTER_CHAIN"
    DEAD_LETTER_SELF = "DEAD_LETTER_SELF"
    DEAD_LETTER_QUEUE_IN_USE = "DEAD_LETTER_QUEUE_IN_USE"
    NOT_A_DEAD_LETTER_QUEUE = "NOT_A_DEAD_LETTER_QUEUE"
    INVALID_NAME = "INVALID_NAME"
    INVALID_PARTITION = "INVALID_PARTITION"
    INVALID_TRANSACTION_ID = "INVALID_TRANSACTION_ID"
    INVALID_TRACE_ID = "INVALID_TRACE_ID"
    INVALID_PAYLOAD = "INVALID_PAYLOAD"
    INVALID_EVENT = "INVALID_EVENT"
    INVALID_HEADERS = "INVALID_HEADERS"
    INVALID_PRIORITY = "INVALID_PRIORITY"
    INVALID_TIME = "INVALID_TIME"
    INVALID_SETTING = "INVALID_SETTING"
    INVALID_REQUEST = "INVALID_REQUEST"
    INVALID_SPEC = "INVALID_SPEC"
    MESSAGE_INVALID = "MESSAGE_INVALID"
    ENTITY_CHANGED = "ENTITY_CHANGED"
    ENTITY_NOT_FOUND = "ENTITY_NOT_FOUND"
    RECEIPT_EXISTS = "RECEIPT_EXISTS"
    APP_NOT_FOUND = "APP_NOT_FOUND"
    PIPELINE_NOT_FOUND = "PIPELINE_NOT_FOUND"
    WEBHOOK_NOT_FOUND = "WEBHOOK_NOT_FOUND"
    KEY_NOT_FOUND = "KEY_NOT_FOUND"
    LAST_ADMIN_KEY = "LAST_ADMIN_KEY"
    WEBHOOK_UNAVAILABLE = "WEBHOOK_UNAVAILABLE"
    SIGNATURE_INVALID = "SIGNATURE_INVALID"
    SIGNATURE_MALFORMED = "SIGNATURE_MALFORMED"
    GUARD_REJECTED = "GUARD_REJECTED"
    MAPPING_FAILED = "MAPPING_FAILED"
    COMMAND_UNAVAILABLE = "COMMAND_UNAVAILABLE"
    COMMAND_FAILED = "COMMAND_FAILED"
    NOT_ENCRYPTED = "NOT_ENCRYPTED"
    CANNOT_DECRYPT = "CANNOT_DECRYPT"
    KEY_UNAVAILABLE = "KEY_UNAVAILABLE"
    MALFORMED = "MALFORMED"
    ROUTE_NOT_FOUND = "ROUTE_NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    UNSUPPORTED_MEDIA_TYPE = "UNSUPPORTED_MEDIA_TYPE"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    HOST_UNKNOWN = "HOST_UNKNOWN"
    TOO_MANY_REQUESTS = "TOO_MANY_REQUESTS"
    OVERLOADED = "OVERLOADED"
    SERVER_UNREACHABLE = "SERVER_UNREACHABLE"
    LAKE_UNREACHABLE = "LAKE_UNREACHABLE"
    ADDRESS_UNAVAILABLE = "ADDRESS_UNAVAILABLE"
    STORE_UNAVAILABLE = "STORE_UNAVAILABLE"
    STORE_BUSY = "STORE_BUSY"
    STORE_CORRUPT = "STORE_CORRUPT"
    STORE_FULL = "STORE_FULL"
    SERVER_BUSY = "SERVER_BUSY"
    STOPPING = "STOPPING"
    INTERNAL = "INTERNAL"


RETRYABLE = frozenset({
    Code.QUEUE_FULL, Code.STORE_UNAVAILABLE, Code.STORE_BUSY, Code.STORE_FULL, Code.SERVER_BUSY, Code.STOPPING, Code.REQUEST_TIMEOUT,
    Code.TOO_MANY_REQUESTS, Code.OVERLOADED, Code.OPERATIONS_AHEAD, Code.SERVER_UNREACHABLE, Code.LAKE_UNREACHABLE,
    Code.COMMAND_UNAVAILABLE, Code.WEBHOOK_UNAVAILABLE,
})  # fmt: skip


class Outlook(StrEnum):
    """Whether a call that failed can be done later, unchanged."""

    LATER = "later"
    """The store, or this server, cannot now; nothing is wrong with the call. It waits, however long that takes."""
    DOUBTFUL = "doubtful"
    """Perhaps later, perhaps never: it waits for a time that is set."""
    NEVER = "never"
    """A rule forbids it. No number of tries changes that."""


DOUBTFUL = frozenset({Code.QUEUE_FULL, Code.INTERNAL})
LATER = (RETRYABLE | {Code.STORE_CORRUPT, Code.KEY_UNAVAILABLE}) - DOUBTFUL
"""A damaged store is restored, and a missing master key is given: neither is the fault of a call that waits for it."""


def outlook(code: Code) -> Outlook:
    """What a failure with this code means for a call that was accepted. The one place that decides it."""
    if code in LATER:
        return Outlook.LATER
    return Outlook.DOUBTFUL if code in DOUBTFUL else Outlook.NEVER


def sentence(text: str) -> str:
    """A text for people as a sentence: with a capital and a full stop. Several lines, such as a list of problems, stay as they are."""
    if not text or "\n" in text:
        return text
    if _WORD.match(text):
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) else text + "."


class SkepError(Exception):
    """The one exception of Skep: a code, a message for people, details for programs.

    In the code, in logs and in exceptions a message is a clause, which others may build on. HTTP answers, the command line and
    the dashboard show it as a ``sentence``.
    """

    def __init__(self, code: Code, message: str, **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later, unchanged."""
        return self.code in RETRYABLE

    @property
    def outlook(self) -> Outlook:
        """Whether the call can be done later, when it was accepted already."""
        return outlook(self.code)

    @property
    def sentence(self) -> str:
        """The message as it is shown."""
        return sentence(self.message)

    @property
    def shown(self) -> str:
        """The code and the sentence, as the command line shows them."""
        return f"{self.code}: {self.sentence}"

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"
