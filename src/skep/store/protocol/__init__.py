"""The verbs of every store: a part for each noun, and `Store`, which has them all.

A verb is one transaction, all or nothing, unless it says otherwise. After an error assume that nothing of the call happened. Only an
error of the connection during a commit is ambiguous; so ids and transaction ids (idempotency keys) are made before the first try.
Verbs take batches: the engine passes all waiting requests, and gets one answer for each. Time is given as ``now``. Errors are
`skep.errors.SkepError`, with a ``STORE_…`` code when the store itself failed. `docs/log.md` specifies the log, leases and dead letters.
"""

from __future__ import annotations

from typing import Protocol

from skep.store.protocol.access import AccessStore
from skep.store.protocol.browse import BrowseVerbs
from skep.store.protocol.chores import ChoreVerbs
from skep.store.protocol.connection import ConnectionVerbs
from skep.store.protocol.data_keys import DataKeyVerbs
from skep.store.protocol.dead_letters import DeadLetterReadVerbs, DeadLetterSourceVerbs, DeadLetterVerbs
from skep.store.protocol.groups import GroupVerbs
from skep.store.protocol.history import FailureVerbs, HistoryVerbs
from skep.store.protocol.leases import LeaseVerbs
from skep.store.protocol.log import LogReadVerbs, LogVerbs
from skep.store.protocol.operations import OperationVerbs
from skep.store.protocol.pop import PopVerbs
from skep.store.protocol.push import PushVerbs
from skep.store.protocol.queues import QueueVerbs
from skep.store.protocol.records import HasRecords
from skep.store.protocol.refusals import RefusalStore
from skep.store.protocol.scheduled import ScheduledStore
from skep.store.protocol.servers import ServerVerbs
from skep.store.protocol.settle import SettleVerbs
from skep.store.protocol.staging import StagingVerbs
from skep.store.protocol.stats import StatsVerbs


class PayloadVerbs(PopVerbs, BrowseVerbs, LogReadVerbs, DeadLetterReadVerbs, FailureVerbs, Protocol):
    """The verbs that return payloads, or errors that may quote them. Sealed (encrypted) payloads stay sealed."""


class Store(
    ConnectionVerbs,
    QueueVerbs,
    PushVerbs,
    PayloadVerbs,
    SettleVerbs,
    LeaseVerbs,
    GroupVerbs,
    OperationVerbs,
    LogVerbs,
    StagingVerbs,
    DeadLetterSourceVerbs,
    DeadLetterVerbs,
    DataKeyVerbs,
    StatsVerbs,
    HistoryVerbs,
    ChoreVerbs,
    ServerVerbs,
    HasRecords,
    Protocol,
):
    """All verbs of a store."""

    @property
    def access(self) -> AccessStore:
        """Keys, and the audit log."""

    @property
    def refusals(self) -> RefusalStore:
        """Requests that webhooks refused."""

    @property
    def scheduled(self) -> ScheduledStore:
        """Messages that wait for their time."""
