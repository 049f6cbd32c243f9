"""Queues: creating, finding, listing, attributes, tags, permissions, purging and deleting them."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from skep.http.sqs import managing
from skep.model import Queue
from tests.sqs.driver import REGION, Sqs

NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


def test_a_queue_is_made_found_and_deleted(sqs: Sqs) -> None:
    url = sqs.create("orders_1-a")
    assert url == f"{sqs.server.url}/sqs/{sqs.tenant}/orders_1-a"
    assert sqs.client.get_queue_url(QueueName="orders_1-a")["QueueUrl"] == url
    assert sqs.create("orders_1-a") == url
    sqs.client.delete_queue(QueueUrl=url)
    assert sqs.fails("get_queue_url", QueueName="orders_1-a") == NO_QUEUE
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="1") == NO_QUEUE
    assert sqs.fails("receive_message", QueueUrl=url) == NO_QUEUE
    assert sqs.fails("delete_queue", QueueUrl=url) == NO_QUEUE
    assert sqs.api.get("/api/v1/resources/queues/orders_1-a").status == 404


def test_a_queue_that_is_made_anew_is_empty(sqs: Sqs) -> None:
    url = sqs.create(DelaySeconds=100)
    sqs.send(url, DelaySeconds=0)
    sqs.client.delete_queue(QueueUrl=url)
    url = sqs.create()
    assert sqs.receive(url) == []
    assert sqs.attributes(url)["DelaySeconds"] == "0"


def test_attributes_are_told_as_they_were_given(sqs: Sqs) -> None:
    given = {
        "VisibilityTimeout": "0", "MessageRetentionPeriod": "60", "DelaySeconds": "900", "MaximumMessageSize": "1024",
        "ReceiveMessageWaitTimeSeconds": "20", "KmsMasterKeyId": "alias/mine", "KmsDataKeyReusePeriodSeconds": "60",
        "SqsManagedSseEnabled": "false", "Policy": '{"Version": "2012-10-17"}', "RedriveAllowPolicy": '{"redrivePermission": "denyAll"}',
    }  # fmt: skip
    url = sqs.create(**given)
    told = sqs.attributes(url)
    assert given.items() <= told.items()
    assert told["QueueArn"] == f"arn:aws:sqs:{REGION}:{sqs.tenant}:q"
    assert sqs.create(**given) == url
    for name in given:
        assert sqs.attributes(url, name) == {name: given[name]}
    changed = {"VisibilityTimeout": "43200", "DelaySeconds": "0", "Policy": ""}
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes=changed)
    told = sqs.attributes(url)
    assert (told["VisibilityTimeout"], told["DelaySeconds"], "Policy" in told) == ("43200", "0", False)
    assert sqs.fails("create_queue", QueueName="q", Attributes={"VisibilityTimeout": "1"}) == "QueueAlreadyExists"


def test_defaults(sqs: Sqs) -> None:
    told = sqs.attributes(sqs.create_fifo())
    assert told | {
        "VisibilityTimeout": "30", "MessageRetentionPeriod": "345600", "DelaySeconds": "0", "MaximumMessageSize": "1048576",
        "ReceiveMessageWaitTimeSeconds": "0", "FifoQueue": "true", "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue",
    } == told  # fmt: skip


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "-1"}, "InvalidAttributeValue"),
        ({"DelaySeconds": "901"}, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "59"}, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1023"}, "InvalidAttributeValue"),
        ({"ReceiveMessageWaitTimeSeconds": "x"}, "InvalidAttributeValue"),
        ({"Nope": "1"}, "InvalidAttributeName"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ({"QueueArn": "1"}, "InvalidAttributeName"),
        ({"Policy": "["}, "InvalidAttributeValue"),
        ({"RedrivePolicy": "{}"}, "InvalidParameterValue"),
        ({"RedrivePolicy": '{"deadLetterTargetArn": "arn:aws:sqs:x:y:none", "maxReceiveCount": 1}'}, "InvalidParameterValue"),
        ({"RedrivePolicy": '{"deadLetterTargetArn": "none", "maxReceiveCount": 1}'}, "InvalidParameterValue"),
    ],
)  # fmt: skip
def test_what_may_not_be_set_is_refused(sqs: Sqs, attributes: dict[str, str], code: str) -> None:
    url = sqs.create("there")
    assert sqs.fails("create_queue", QueueName="new", Attributes=attributes) == code
    assert sqs.fails("set_queue_attributes", QueueUrl=url, Attributes=attributes) == code
    assert sqs.fails("get_queue_url", QueueName="new") == NO_QUEUE


@pytest.mark.parametrize("name", ["", "a b", "a" * 81, "ä", "a.fifo", "a/b", "a.b"])
def test_a_name_that_sqs_does_not_have_is_refused(sqs: Sqs, name: str) -> None:
    assert sqs.fails("create_queue", QueueName=name) == "InvalidParameterValue"


def test_a_fifo_queue_is_one_by_name_and_attribute(sqs: Sqs) -> None:
    assert sqs.fails("create_queue", QueueName="a", Attributes={"FifoQueue": "true"}) == "InvalidParameterValue"
    assert sqs.fails("create_queue", QueueName="a.fifo", Attributes={"FifoQueue": "false"}) == "InvalidParameterValue"


def test_queues_are_listed_by_prefix_and_page(sqs: Sqs) -> None:
    names = [f"a-{n}" for n in range(5)] + ["b-0", "b-1"]
    urls = {name: sqs.create(name) for name in names}
    everything = sqs.client.list_queues()["QueueUrls"]
    assert everything == [urls[name] for name in names]
    assert sqs.client.list_queues(QueueNamePrefix="b")["QueueUrls"] == [urls["b-0"], urls["b-1"]]
    assert "QueueUrls" not in sqs.client.list_queues(QueueNamePrefix="c")
    pages = sqs.client.get_paginator("list_queues").paginate(QueueNamePrefix="a", PaginationConfig={"PageSize": 2})
    assert [page["QueueUrls"] for page in pages] == [[urls[f"a-{n}"] for n in some] for some in ((0, 1), (2, 3), (4,))]
    assert sqs.fails("list_queues", MaxResults=1001) == "InvalidParameterValue"
    assert sqs.fails("list_queues", NextToken="ä!", MaxResults=1) == "InvalidParameterValue"


def test_figures_count_what_is_visible_in_flight_and_delayed(sqs: Sqs) -> None:
    url = sqs.create()

    def figures() -> list[int]:
        told = sqs.attributes(url)
        return [int(told[f"ApproximateNumberOfMessages{kind}"]) for kind in ("", "NotVisible", "Delayed")]

    assert figures() == [0, 0, 0]
    for _ in range(3):
        sqs.send(url)
    sqs.send(url, DelaySeconds=60)
    assert figures() == [3, 0, 1]
    found = sqs.receive(url, 2)
    assert figures() == [1, 2, 1]
    sqs.delete(url, *found)
    assert figures() == [1, 0, 1]
    sqs.client.purge_queue(QueueUrl=url)
    assert figures() == [0, 0, 0]


def test_a_purge_takes_what_is_in_flight_too(sqs: Sqs) -> None:
    url = sqs.create(VisibilityTimeout=10)
    sqs.send(url)
    [message] = sqs.receive(url)
    sqs.client.purge_queue(QueueUrl=url)
    sqs.delete(url, message)
    sqs.pass_seconds(11)
    assert sqs.receive(url) == []


def test_tags(sqs: Sqs) -> None:
    url = sqs.client.create_queue(QueueName="q", tags={"team": "a", "cost": "1"})["QueueUrl"]
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "a", "cost": "1"}
    sqs.client.tag_queue(QueueUrl=url, Tags={"team": "b", "new": ""})
    sqs.client.untag_queue(QueueUrl=url, TagKeys=["cost", "none"])
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "b", "new": ""}
    assert sqs.fails("tag_queue", QueueUrl=url, Tags={f"t{n}": "" for n in range(51)}) == "InvalidParameterValue"
    assert sqs.fails("tag_queue", QueueUrl=url, Tags={"aws:x": ""}) == "InvalidParameterValue"
    sqs.client.untag_queue(QueueUrl=url, TagKeys=["team", "new"])
    assert "Tags" not in sqs.client.list_queue_tags(QueueUrl=url)


def test_tags_that_are_set_at_the_same_time_are_all_kept(sqs: Sqs) -> None:
    url = sqs.create()
    names = [f"tag-{n}" for n in range(40)]
    with ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda name: sqs.client.tag_queue(QueueUrl=url, Tags={name: "x"}), names))
    assert sorted(sqs.client.list_queue_tags(QueueUrl=url)["Tags"]) == sorted(names)


def test_permissions_are_statements_of_the_policy(sqs: Sqs) -> None:
    url = sqs.create()
    asked: dict[str, Any] = {"QueueUrl": url, "AWSAccountIds": ["111122223333"], "Actions": ["SendMessage", "*"]}
    sqs.client.add_permission(Label="one", **asked)
    sqs.client.add_permission(Label="two", **asked)
    policy = json.loads(sqs.attributes(url, "Policy")["Policy"])
    assert [statement["Sid"] for statement in policy["Statement"]] == ["one", "two"]
    assert policy["Statement"][0]["Action"] == ["SQS:SendMessage", "SQS:*"]
    assert sqs.fails("add_permission", Label="one", **asked) == "InvalidParameterValue"
    sqs.client.remove_permission(QueueUrl=url, Label="one")
    assert sqs.fails("remove_permission", QueueUrl=url, Label="one") == "InvalidParameterValue"
    sqs.client.remove_permission(QueueUrl=url, Label="two")
    assert "Policy" not in sqs.attributes(url)


def test_a_redrive_needs_a_queue_of_the_same_kind_that_lets_it_in(sqs: Sqs) -> None:
    dead, fifo = sqs.create("dead"), sqs.create_fifo("dead.fifo")

    def policy(url: str) -> dict[str, str]:
        return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": sqs.arn(url), "maxReceiveCount": "3"})}

    url = sqs.create()
    assert sqs.fails("set_queue_attributes", QueueUrl=url, Attributes=policy(fifo)) == "InvalidParameterValue"
    for allow, lets_in in (
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [sqs.arn(fifo)]}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [sqs.arn(url)]}, True),
        ({"redrivePermission": "allowAll"}, True),
    ):
        sqs.client.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(allow)})
        if lets_in:
            sqs.client.set_queue_attributes(QueueUrl=url, Attributes=policy(dead))
        else:
            assert sqs.fails("set_queue_attributes", QueueUrl=url, Attributes=policy(dead)) == "InvalidParameterValue"
    told = json.loads(sqs.attributes(url)["RedrivePolicy"])
    assert told == {"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 3}


@pytest.mark.parametrize(
    "policy",
    [
        {"redrivePermission": "denyall"},
        {"redrivePermision": "denyAll"},
        {"redrivePermission": ["denyAll"]},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": []},
        {"redrivePermission": "byQueue", "sourceQueueArns": "arn:aws:sqs:x:y:q"},
        {"redrivePermission": "byQueue", "sourceQueueArns": [1]},
        {"redrivePermission": "byQueue", "sourceQueueArns": ["arn:aws:sqs:x:y:q"] * 11},
    ],
)
def test_a_redrive_allow_policy_that_says_nothing_known_is_refused(sqs: Sqs, policy: dict[str, Any]) -> None:
    """A slip of the pen in one that should deny would let every queue in."""
    url = sqs.create()
    given = {"RedriveAllowPolicy": json.dumps(policy)}
    assert sqs.fails("set_queue_attributes", QueueUrl=url, Attributes=given) == "InvalidParameterValue"
    assert sqs.fails("create_queue", QueueName="new", Attributes=given) == "InvalidParameterValue"
    assert "RedriveAllowPolicy" not in sqs.attributes(url)


def test_a_change_on_the_native_side_counts_at_once(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    assert sqs.receive(url)
    sqs.api.post("/api/v1/configure", {"queue": "q", "settings": {"lease_seconds": 77}})
    assert sqs.attributes(url)["VisibilityTimeout"] == "77"


def test_the_scope_of_deduplication_is_told_as_it_is_natively(sqs: Sqs) -> None:
    """A queue that a push has made deduplicates within a partition. SQS may change that, and so may the native side."""
    sqs.api.push("q.fifo", 1)
    url = sqs.client.get_queue_url(QueueName="q.fifo")["QueueUrl"]
    assert sqs.attributes(url)["DeduplicationScope"] == "messageGroup"
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"DeduplicationScope": "queue"})
    assert sqs.attributes(url)["DeduplicationScope"] == "queue"
    sqs.api.post("/api/v1/configure", {"queue": "q.fifo", "settings": {"dedup_across_partitions": False}})
    assert sqs.attributes(url)["DeduplicationScope"] == "messageGroup"


def test_a_queue_that_was_made_natively_is_taken_over_by_a_create(sqs: Sqs) -> None:
    sqs.api.post("/api/v1/configure", {"queue": "q", "settings": {"lease_seconds": 77, "ordering": "unordered"}})
    url = sqs.create(VisibilityTimeout=33, DelaySeconds=5)
    told = sqs.attributes(url)
    assert (told["VisibilityTimeout"], told["DelaySeconds"]) == ("33", "5")


def test_a_list_by_prefix_looks_at_no_queue_behind_it(sqs: Sqs, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, looks = sqs.server.engine, list[str]()
    look = engine.list_queues

    def seen(tenant: str, *, after: str, limit: int) -> Awaitable[list[Queue]]:
        looks.append(after)
        return look(tenant, after=after, limit=limit)

    for name in ("a", "b-1", "b-2", "b-3", "c", "d", "e", "f"):
        sqs.create(name)
    monkeypatch.setattr(managing, "PAGE", 2)
    monkeypatch.setattr(engine, "list_queues", seen)
    found = sqs.client.list_queues(QueueNamePrefix="b-", MaxResults=2)
    rest = sqs.client.list_queues(QueueNamePrefix="b-", MaxResults=2, NextToken=found["NextToken"])
    names = [url.rpartition("/")[2] for page in (found, rest) for url in page["QueueUrls"]]
    assert (names, "NextToken" in rest) == (["b-1", "b-2", "b-3"], False)
    assert looks == ["b", "b-2", "b-2"]
