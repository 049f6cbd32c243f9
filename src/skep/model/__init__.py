"""The words of Skep as data: queues, messages, deliveries, settlements, dead letters, and figures about them.

They are structs, and functions that pack or check them. Payloads and headers stay the bytes they came as. Instants are microseconds
(`skep.clock`), ids 16 bytes (`skep.ids`).

The structs of push, pop and settle can be imported from here. The others are imported from their modules, such as
`skep.model.operation`, `skep.model.record` and `skep.model.key`.
"""

from skep.model.dead_letter import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterOrigin,
    DeadReason,
    Edited,
    PurgeStep,
    Replayed,
    ReplayStep,
)
from skep.model.delivery import Delivery, PopRequest, PopResult
from skep.model.group import FROM_BEGINNING, FROM_NOW, NO_GROUP, QUEUE_MODE_GROUP, Start, StartMode
from skep.model.lease import WHOLE_LEASE, LeaseInfo, Renewal, RenewResult, Token
from skep.model.message import (
    SEALED_ERROR,
    SEALED_KEY,
    SEALED_TYPE,
    Appended,
    DeletedMessage,
    MessageFilter,
    MessagePage,
    MessageState,
    NewMessage,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueuedOperation,
    SealedPayloads,
    StoredMessage,
    StoredRange,
    Tried,
)
from skep.model.queue import (
    DEAD_LETTER_SUFFIX,
    DEFAULT_PARTITION,
    LOG_CHUNK,
    NO_DEAD_LETTER_QUEUE,
    WINDOW_CAP_FACTOR,
    Cleared,
    ClearScope,
    Depth,
    LogBounds,
    Queue,
    QueueKey,
    Seq,
)
from skep.model.queue_settings import Ordering, QueueChanges, QueueSettings
from skep.model.record import DEFAULT_TENANT
from skep.model.settlement import Outcome, Retry, Settlement, SettleResult, SettleStatus
from skep.model.stats import ArchiveStats, GroupStats, PartitionStats, QueueStats, Rates

__all__ = [
    "DEAD_LETTER_SUFFIX",
    "DEFAULT_PARTITION",
    "DEFAULT_TENANT",
    "FROM_BEGINNING",
    "FROM_NOW",
    "LOG_CHUNK",
    "NO_DEAD_LETTER_QUEUE",
    "NO_GROUP",
    "QUEUE_MODE_GROUP",
    "SEALED_ERROR",
    "SEALED_KEY",
    "SEALED_TYPE",
    "WHOLE_LEASE",
    "WINDOW_CAP_FACTOR",
    "Appended",
    "ArchiveStats",
    "ClearScope",
    "Cleared",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterOrigin",
    "DeadReason",
    "DeletedMessage",
    "Delivery",
    "Depth",
    "Edited",
    "GroupStats",
    "LeaseInfo",
    "LogBounds",
    "MessageFilter",
    "MessagePage",
    "MessageState",
    "NewMessage",
    "Ordering",
    "Outcome",
    "PartitionStats",
    "PopRequest",
    "PopResult",
    "PurgeStep",
    "PushBatch",
    "PushOutcome",
    "PushResult",
    "PushStatus",
    "Queue",
    "QueueChanges",
    "QueueKey",
    "QueueSettings",
    "QueueStats",
    "QueuedOperation",
    "Rates",
    "RenewResult",
    "Renewal",
    "ReplayStep",
    "Replayed",
    "Retry",
    "SealedPayloads",
    "Seq",
    "SettleResult",
    "SettleStatus",
    "Settlement",
    "Start",
    "StartMode",
    "StoredMessage",
    "StoredRange",
    "Token",
    "Tried",
]  # fmt: skip
