"""Batches: what holds for all of them, and what failed in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from skep.errors import SkepError
from skep.http.request.statuses import seen_from_outside
from skep.http.sqs.faults import EMPTY_BATCH, IDS_NOT_DISTINCT, INVALID_ENTRY_ID, TOO_MANY_ENTRIES, SqsError, fault_of
from skep.http.sqs.shapes import FailedEntry

ENTRIES_MAX = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)


class BatchEntry(Protocol):
    """An entry of a batch."""

    @property
    def id(self) -> str | None: ...


def check_batch(entries: Sequence[BatchEntry]) -> None:
    """Check the number of entries, and their ids."""
    if not entries:
        raise SqsError(EMPTY_BATCH, "There should be at least one entry in the request.")
    if len(entries) > ENTRIES_MAX:
        raise SqsError(
            TOO_MANY_ENTRIES, f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent more."
        )
    ids = [entry.id for entry in entries]
    for id_ in ids:
        if id_ is None or not _ID.fullmatch(id_):
            raise SqsError(
                INVALID_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.",
            )
    if len(set(ids)) < len(ids):
        raise SqsError(IDS_NOT_DISTINCT, "Two or more batch entries in the request have the same Id.")


def failed(id_: str, error: SkepError) -> FailedEntry:
    """An entry that failed."""
    fault = fault_of(seen_from_outside(error))
    return FailedEntry(id_, fault.is_senders, fault.code, error.message)
