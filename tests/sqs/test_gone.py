"""Clients that leave during a receive: the messages go to others at once, and that was no receive."""

from __future__ import annotations

import json
import socket

from tests.sqs.driver import Sqs


def receive_and_leave(sqs: Sqs, url: str, wait: int) -> socket.socket:
    """Begin a receive by hand; the caller leaves by closing the connection."""
    body = json.dumps({"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": wait}).encode()
    connection = socket.create_connection(("127.0.0.1", sqs.server.port))
    connection.sendall(
        b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-amz-target: AmazonSQS.ReceiveMessage\r\nskep-tenant: %b\r\n"
        b"content-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n%b"
        % (sqs.tenant.encode(), len(body), body)
    )
    return connection


def test_who_leaves_a_long_poll_gets_nothing(sqs: Sqs) -> None:
    async def parked() -> int:
        return sqs.server.engine.parked_polls

    url = sqs.create()
    with receive_and_leave(sqs, url, 20):
        while not sqs.server.run(parked()):
            pass
    while sqs.server.run(parked()):
        pass
    sqs.send(url)
    [message] = sqs.receive(url, WaitTimeSeconds=5)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
