"""Clients as their users start them: boto3's resources, and aiobotocore."""

from __future__ import annotations

import asyncio
from typing import Any

import boto3
import pytest
from aiobotocore.session import get_session

from skep.testing.server import running_server
from tests.sqs.driver import REGION

CREDENTIALS = {"region_name": REGION, "aws_access_key_id": "any", "aws_secret_access_key": "any"}


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> str:
    return ":memory:" if request.param == "sqlite" else str(request.getfixturevalue("postgres_dsn"))


def test_resources_of_boto3(store: str) -> None:
    with running_server(store) as server:
        sqs: Any = boto3.resource("sqs", endpoint_url=server.url, **CREDENTIALS)
        dead = sqs.create_queue(QueueName="dead")
        queue = sqs.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "60"})
        queue.set_attributes(
            Attributes={
                "RedrivePolicy": f'{{"deadLetterTargetArn": "{dead.attributes["QueueArn"]}", "maxReceiveCount": 1}}'
            }
        )
        assert [one.url for one in dead.dead_letter_source_queues.all()] == [queue.url]
        assert sorted(one.url for one in sqs.queues.all()) == sorted([queue.url, dead.url])
        assert sqs.get_queue_by_name(QueueName="q").url == queue.url
        queue.send_message(MessageBody="one", MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}})
        queue.send_messages(Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(9)])
        found: list[Any] = []
        while len(found) < 10:  # what has one receive alone comes alone
            found += queue.receive_messages(MaxNumberOfMessages=10, MessageAttributeNames=["All"], WaitTimeSeconds=1)
        assert [one.message_attributes for one in found if one.body == "one"] == [
            {"a": {"DataType": "String", "StringValue": "b"}}
        ]
        last, first, *others = found
        last.delete()
        first.change_visibility(VisibilityTimeout=0)  # that was its only receive: it dies
        queue.delete_messages(
            Entries=[{"Id": str(n), "ReceiptHandle": one.receipt_handle} for n, one in enumerate(others)]
        )
        [letter] = dead.receive_messages(WaitTimeSeconds=5)
        assert letter.body == first.body
        queue.purge()
        queue.delete()
        dead.delete()
        assert list(sqs.queues.all()) == []


def test_aiobotocore(store: str) -> None:
    with running_server(store) as server:

        async def main() -> list[str]:
            session: Any = get_session()
            async with session.create_client("sqs", endpoint_url=server.url, **CREDENTIALS) as sqs:
                url = (await sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true"}))["QueueUrl"]
                waiting = asyncio.create_task(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20))
                sent = [
                    sqs.send_message(
                        QueueUrl=url, MessageBody=str(n), MessageGroupId=f"g{n}", MessageDeduplicationId=str(n)
                    )
                    for n in range(5)
                ]
                await asyncio.gather(*sent)
                bodies: list[str] = []
                answer = await waiting
                while found := answer.get("Messages", []):
                    bodies += [one["Body"] for one in found]
                    done = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(found)]
                    await sqs.delete_message_batch(QueueUrl=url, Entries=done)
                    answer = await sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
                return bodies

        assert sorted(asyncio.run(main())) == [str(n) for n in range(5)]
