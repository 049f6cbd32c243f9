"""A server that is killed: what was answered stays, and what was not can be sent again."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError

from tests.sqs.driver import client
from tests.support.serving import ServeProcess, serving

pytestmark = pytest.mark.slow
TRIES = 2_000


def at(server: ServeProcess) -> Any:
    return client(f"http://127.0.0.1:{server.listening()}")


def test_what_was_answered_is_there_after_a_kill_and_a_repeat_is_no_second_message(tmp_path: Path) -> None:
    given = ("--store", str(tmp_path / "skep.db"))
    with serving(*given, folder=tmp_path) as server:
        sqs = at(server)
        url = sqs.create_queue(QueueName="q.fifo", Attributes={"FifoQueue": "true", "VisibilityTimeout": "600"})[
            "QueueUrl"
        ]
        standard = sqs.create_queue(QueueName="q", Attributes={"DelaySeconds": "0"}, tags={"a": "b"})["QueueUrl"]
        first = sqs.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="1")
        for n in range(10):
            sqs.send_message(QueueUrl=standard, MessageBody=str(n))
        held = sqs.receive_message(QueueUrl=standard, MaxNumberOfMessages=10, VisibilityTimeout=600)["Messages"]
        # Killed between the request and its answer: the client cannot know whether it was stored.
        port = int(sqs.meta.endpoint_url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            body = (
                b'{"QueueUrl":"%b","MessageBody":"2","MessageGroupId":"g","MessageDeduplicationId":"2"}' % url.encode()
            )
            connection.sendall(
                b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-amz-target: AmazonSQS.SendMessage\r\ncontent-type: application/x-amz-json-1.0\r\n"
                b"content-length: %d\r\n\r\n%b" % (len(body), body)
            )
            server.signal(signal.SIGKILL)
            server.ended()
        with pytest.raises(BotoCoreError):
            sqs.list_queues()
    with serving(*given, folder=tmp_path) as server:
        sqs = at(server)
        again = sqs.send_message(QueueUrl=url, MessageBody="1", MessageGroupId="g", MessageDeduplicationId="1")
        assert again["MessageId"] == first["MessageId"]
        sqs.send_message(QueueUrl=url, MessageBody="2", MessageGroupId="g", MessageDeduplicationId="2")
        found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
        assert [one["Body"] for one in found] == ["1", "2"]
        entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(held)]
        assert "Messages" not in sqs.receive_message(QueueUrl=standard, MaxNumberOfMessages=10)
        assert len(sqs.delete_message_batch(QueueUrl=standard, Entries=entries)["Successful"]) == len(held) == 10
        told = sqs.get_queue_attributes(QueueUrl=standard, AttributeNames=["All"])["Attributes"]
        assert (told["ApproximateNumberOfMessages"], told["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")
        assert sqs.list_queue_tags(QueueUrl=standard)["Tags"] == {"a": "b"}


def test_several_processes_share_what_the_door_knows_of_queues(tmp_path: Path) -> None:
    """A change by one process counts in the others within a second."""
    with serving("--store", str(tmp_path / "skep.db"), "--workers", "2", folder=tmp_path) as server:
        port = server.listening()
        first, *others = [client(f"http://127.0.0.1:{port}") for _ in range(9)]  # over both processes
        url = first.create_queue(QueueName="q", Attributes={"DelaySeconds": "900"})["QueueUrl"]
        for sqs in (first, *others):
            sqs.send_message(QueueUrl=url, MessageBody="later")
        first.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
        for sqs in others:
            for _ in range(TRIES):  # until its process has heard of it
                sqs.send_message(QueueUrl=url, MessageBody="now")
                if found := sqs.receive_message(QueueUrl=url, VisibilityTimeout=600).get("Messages"):
                    assert [one["Body"] for one in found] == ["now"]
                    break
            else:
                pytest.fail("a process has not heard of a change")
