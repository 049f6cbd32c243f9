"""Lease history, dead letters, queues and groups as tables."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from skep.errors import Code
from tests.spark.conftest import Lake


def table(lake: Lake, name: str, **options: Any) -> DataFrame:
    return lake.spark.read.format("skep").options(**lake.connection, table=name, **options).load()


def worked_on(lake: Lake) -> None:
    """Two queues; in one of them two messages are done and one is given up."""
    lake.client.push("others", [1])
    lake.client.push("orders", [{"n": 1}, {"n": 2}, {"n": 3}], partition="p", headers={"a": "b"})
    first, second, third = lake.client.pop("orders", group="workers", batch=3)
    lake.client.ack(first, second)
    lake.client.reject(third, error="no such customer")


def test_leases_tell_who_worked_on_what_and_how_it_ended(lake: Lake) -> None:
    worked_on(lake)

    rows = table(lake, "leases").orderBy("position").collect()

    assert [(row.queue, row.group, row.partition, row.messages, row.outcome) for row in rows] == [
        ("orders", "workers", "p", 2, "completed"),
        ("orders", "workers", "p", 1, "dead"),
    ]
    assert all(row.leased_at <= row.settled_at for row in rows)
    assert table(lake, "leases", subscribe="others").count() == 0


def test_leases_and_letters_are_read_from_a_time_on(lake: Lake) -> None:
    worked_on(lake)
    done, dead = table(lake, "leases").orderBy("position").collect()

    since = {"startingTimestamp": dead.settled_at.astimezone(UTC).isoformat()}
    assert [row.outcome for row in table(lake, "leases", **since).collect()] == ["dead"]
    assert table(lake, "dead_letters", **since).count() == 1
    assert done.settled_at < dead.settled_at
    with pytest.raises(PySparkException, match="startingTimestamp says nothing of the table queues"):
        table(lake, "queues", **since).collect()


def test_dead_letters_come_once_with_their_payload(lake: Lake) -> None:
    worked_on(lake)

    [by_all] = table(lake, "dead_letters").collect()
    [by_name] = table(lake, "dead_letters", subscribe="orders").collect()

    assert by_all == by_name
    assert (by_all.queue, by_all.source_queue, by_all.source_seq) == ("orders.dead", "orders", 3)
    assert (by_all.payload, by_all.headers, by_all.error) == ('{"n":3}', {"a": "b"}, "no such customer")
    assert (by_all.reason, by_all.group, by_all.attempts) == ("rejected", "workers", 1)


def test_queues_and_groups_have_their_figures(lake: Lake) -> None:
    worked_on(lake)

    queues = {row.queue: row for row in table(lake, "queues").collect()}
    [group] = table(lake, "groups", subscribePattern="ord.*s", columns="queue,group,completed,dead,lag").collect()

    assert queues.keys() == {"orders", "orders.dead", "others"}
    assert (queues["orders"].last_seq, queues["orders.dead"].holds_dead_letters) == (3, True)
    assert tuple(group) == ("orders", "workers", 2, 1, 0)


def test_a_table_that_is_not_there_is_refused(lake: Lake) -> None:
    with pytest.raises(PySparkException, match="table is one of leases, dead_letters, queues, groups"):
        table(lake, "messages").collect()


def test_a_queue_without_leases_that_is_not_there_is_told(lake: Lake) -> None:
    with pytest.raises(PySparkException, match=Code.QUEUE_NOT_FOUND):
        table(lake, "leases", subscribe="nowhere").collect()
