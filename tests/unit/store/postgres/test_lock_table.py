"""The table of locks is whole: every verb of the store has a line or a reason to have none, and every line a call that is raced."""

from __future__ import annotations

import inspect

from skep.store.protocol import Store
from skep.store.protocol.access import AccessStore
from skep.store.protocol.records import RecordStore
from skep.store.protocol.refusals import RefusalStore
from skep.store.protocol.scheduled import ScheduledStore
from tests.unit.store.postgres import verbs
from tests.unit.store.postgres.lock_table import read_table, read_verbs_without_line

PARTS: dict[str, type] = {
    "": Store, "access.": AccessStore, "records.": RecordStore, "refusals.": RefusalStore, "scheduled.": ScheduledStore,
}  # fmt: skip


def test_every_verb_of_the_store_has_a_line_or_needs_none() -> None:
    of_the_store = {
        prefix + name
        for prefix, part in PARTS.items()
        for name, _ in inspect.getmembers(part, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    with_line = {line.verb for line in read_table()}

    assert with_line | read_verbs_without_line() == of_the_store
    assert not with_line & read_verbs_without_line()


def test_every_line_has_a_call_and_every_call_a_line() -> None:
    calls = [
        name
        for name, call in inspect.getmembers(verbs, inspect.iscoroutinefunction)
        if call.__module__ == verbs.__name__ and inspect.signature(call).return_annotation.startswith("Callable")
    ]

    assert sorted(line.call for line in read_table()) == calls
