"""A program with a botocore that speaks the query protocol, in an interpreter of its own: every action of SQS once, as programs have them."""

from __future__ import annotations

import json
import sys
from typing import Any

import botocore.config
import botocore.session
from botocore.exceptions import ClientError

BODY = "]]>&amp;<b>\r\n\t\"'ä\U0001f41d "


def run(endpoint: str, key: str, secret: str) -> dict[str, Any]:
    """What the program saw."""
    session: Any = botocore.session.get_session()
    sqs = session.create_client(
        "sqs", "eu-west-1", endpoint_url=endpoint, aws_access_key_id=key, aws_secret_access_key=secret,
        config=botocore.config.Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    seen: dict[str, Any] = {"protocol": sqs.meta.service_model.protocol}
    standard(sqs, seen)
    fifo(sqs, seen)
    dead_letters(sqs, seen)
    refusals(sqs, seen)
    ending(sqs, seen)
    return seen


def standard(sqs: Any, seen: dict[str, Any]) -> None:
    url = sqs.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "77"}, tags={"a": "b", "c": "d"})["QueueUrl"]
    seen["found"] = sqs.get_queue_url(QueueName="q")["QueueUrl"] == url
    attributes = {
        "foo.one": {"DataType": "Number", "StringValue": "7"}, "foo.raw": {"DataType": "Binary.x", "BinaryValue": b"\x00\xff"},
        "bar": {"DataType": "String", "StringValue": "<&>"},
    }  # fmt: skip
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-2"}}
    sent = sqs.send_message(
        QueueUrl=url, MessageBody=BODY, MessageAttributes=attributes, MessageSystemAttributes=system
    )
    named = {"AttributeNames": ["All"], "MessageAttributeNames": ["foo.*"], "VisibilityTimeout": 0}
    [message] = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1, **named)["Messages"]
    seen["body"], seen["trace"] = message["Body"] == BODY, message["Attributes"]["AWSTraceHeader"]
    seen["foo"] = {
        name: value.get("StringValue") or list(value["BinaryValue"])
        for name, value in message["MessageAttributes"].items()
    }
    [again] = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], WaitTimeSeconds=20)["Messages"]
    seen["same"] = (again["MessageAttributes"], again["MessageId"]) == (attributes, sent["MessageId"])
    seen["digests"] = again["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"], VisibilityTimeout=30)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    entries = [{"Id": str(n), "MessageBody": str(n), "MessageAttributes": {"bar": attributes["bar"]}} for n in range(9)]
    batch = sqs.send_message_batch(
        QueueUrl=url, Entries=[*entries, {"Id": "late", "MessageBody": "1", "DelaySeconds": 901}]
    )
    seen["batch"] = [
        len(batch["Successful"]),
        [(one["Id"], one["SenderFault"], one["Code"]) for one in batch["Failed"]],
    ]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(found)]
    hidden = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**one, "VisibilityTimeout": 40} for one in handles]
    )
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=handles)
    seen["batches"] = [len(one["Successful"]) for one in (hidden, deleted)]
    seen["empty"] = sqs.receive_message(QueueUrl=url).get("Messages")
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    seen["attributes"] = [told["VisibilityTimeout"], told["ApproximateNumberOfMessages"]]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "3", "VisibilityTimeout": "5"})
    seen["changed"] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["DelaySeconds"])["Attributes"]
    sqs.tag_queue(QueueUrl=url, Tags={"e": "<f>"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["a", "c"])
    seen["tags"] = sqs.list_queue_tags(QueueUrl=url)["Tags"]
    sqs.add_permission(QueueUrl=url, Label="l", AWSAccountIds=["111122223333"], Actions=["SendMessage", "*"])
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    seen["policy"] = json.loads(policy)["Statement"][0]["Action"]
    sqs.remove_permission(QueueUrl=url, Label="l")


def fifo(sqs: Any, seen: dict[str, Any]) -> None:
    given = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="q.fifo", Attributes=given)["QueueUrl"]
    sent = [sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g") for body in ("1", "2", "1")]
    seen["sequence"] = [one["SequenceNumber"] for one in sent] == [f"{n:020}" for n in (1, 2, 1)]
    got = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, ReceiveRequestAttemptId="a", AttributeNames=["MessageGroupId"]
    )
    seen["groups"] = [(one["Body"], one["Attributes"]) for one in got["Messages"]]


def dead_letters(sqs: Any, seen: dict[str, Any]) -> None:
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    for n in range(3):
        sqs.create_queue(QueueName=f"source-{n}", Attributes={"RedrivePolicy": policy})
    sources = sqs.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=dead, PaginationConfig={"PageSize": 2}
    )
    seen["sources"] = [[url.rpartition("/")[2] for url in page["queueUrls"]] for page in sources]
    pages = sqs.get_paginator("list_queues").paginate(QueueNamePrefix="source", PaginationConfig={"PageSize": 1})
    seen["pages"] = [[url.rpartition("/")[2] for url in page["QueueUrls"]] for page in pages]
    task = sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=5)
    seen["task"] = bool(task["TaskHandle"])
    [told] = sqs.list_message_move_tasks(SourceArn=arn)["Results"]
    seen["moves"] = [told["SourceArn"] == arn, told["MaxNumberOfMessagesPerSecond"], told["StartedTimestamp"] > 10**12]


def refusals(sqs: Any, seen: dict[str, Any]) -> None:
    url = sqs.get_queue_url(QueueName="q")["QueueUrl"]
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "missing": (sqs.get_queue_url, {"QueueName": "none"}),
        "handle": (sqs.delete_message, {"QueueUrl": url, "ReceiptHandle": "<x>"}),
        "other": (sqs.create_queue, {"QueueName": "q", "Attributes": {"DelaySeconds": "4"}}),
        "empty": (sqs.delete_message_batch, {"QueueUrl": url, "Entries": []}),
        "twice": (sqs.send_message_batch, {"QueueUrl": url, "Entries": [{"Id": "1", "MessageBody": "1"}] * 2}),
        "contents": (sqs.send_message, {"QueueUrl": url, "MessageBody": "\x00"}),
        "task": (sqs.cancel_message_move_task, {"TaskHandle": "x"}),
    }
    codes: dict[str, list[object]] = {}
    for name, (call, fields) in calls.items():
        try:
            call(**fields)
        except ClientError as error:
            codes[name] = [
                type(error).__name__, error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"],
            ]  # fmt: skip
    seen["codes"] = codes


def ending(sqs: Any, seen: dict[str, Any]) -> None:
    url = sqs.get_queue_url(QueueName="q")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="1", DelaySeconds=0)
    sqs.purge_queue(QueueUrl=url)
    seen["purged"] = sqs.receive_message(QueueUrl=url).get("Messages")
    for name in ("q", "q.fifo", "source-0", "source-1", "source-2", "dead"):
        sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName=name)["QueueUrl"])
    seen["left"] = sqs.list_queues().get("QueueUrls")


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
