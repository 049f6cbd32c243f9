"""boto3 as one tenant of a server, and the calls that most tests begin with."""

from __future__ import annotations

from typing import Any, Self

import boto3
import botocore.config
import pytest
from botocore.exceptions import ClientError

from skep.access.administering import KeyDesk
from skep.access.keys import access_key_id
from skep.clock import ManualClock
from skep.model.key import VERBS_OF, Grant, Role
from skep.testing.server import RunningServer
from tests.http.driver import Api

REGION = "eu-west-1"


def client(url: str, tenant: str | None = None, key: str = "test", secret: str = "test", **config: Any) -> Any:
    """A client of boto3, which names its tenant in a header."""
    settings = botocore.config.Config(retries={"total_max_attempts": 1}, **config)
    made = boto3.client(
        "sqs",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=settings,
    )
    if tenant is not None:
        made.meta.events.register(
            "before-sign.sqs", lambda request, **_: request.headers.add_header("Skep-Tenant", tenant)
        )
    return made


def signing_credentials(server: RunningServer) -> tuple[str, str]:
    """The access key id and the secret of a new key that may do anything."""
    engine = server.engine
    making = KeyDesk(engine.access, engine.now).make(
        None, "test", [Grant(VERBS_OF[Role.ADMIN])], created_by="test", seal=engine.encryption.seal_secret
    )
    minted = server.run(making)
    return access_key_id(minted.record.id), minted.text.rpartition("_")[2]


class Sqs:
    """One tenant's client, and the same tenant natively."""

    def __init__(self, server: RunningServer, clock: ManualClock, tenant: str) -> None:
        self.server = server
        self.clock = clock
        self.tenant = tenant
        self.client = client(server.url, tenant)
        self.api = Api(server, tenant)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.api.close()

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass, and what is due be done."""
        self.clock.advance(seconds)
        self.server.until_quiet()

    def create(self, name: str = "q", **attributes: object) -> str:
        """Make a queue; its URL."""
        given = {key: str(value) for key, value in attributes.items()}
        url: str = self.client.create_queue(QueueName=name, Attributes=given)["QueueUrl"]
        return url

    def create_fifo(self, name: str = "q.fifo", **attributes: object) -> str:
        return self.create(name, FifoQueue="true", **attributes)

    def send(self, url: str, body: str = "body", **fields: Any) -> dict[str, Any]:
        sent: dict[str, Any] = self.client.send_message(QueueUrl=url, MessageBody=body, **fields)
        return sent

    def receive(self, url: str, most: int = 10, **fields: Any) -> list[dict[str, Any]]:
        asked = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]} | fields
        found: list[dict[str, Any]] = self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **asked).get(
            "Messages", []
        )
        return found

    def receive_all(self, url: str, **fields: Any) -> list[dict[str, Any]]:
        """Everything that can be had, in as many receives as it takes."""
        found: list[dict[str, Any]] = []
        while more := self.receive(url, **fields):
            found += more
        return found

    def bodies(self, url: str, **fields: Any) -> list[str]:
        return [message["Body"] for message in self.receive_all(url, **fields)]

    def delete(self, url: str, *messages: dict[str, Any]) -> None:
        for message in messages:
            self.client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def hide(self, url: str, message: dict[str, Any], seconds: int) -> None:
        """Change a message's visibility timeout."""
        self.client.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        found: dict[str, str] = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names or ["All"]))[
            "Attributes"
        ]
        return found

    def arn(self, url: str) -> str:
        return self.attributes(url, "QueueArn")["QueueArn"]

    def fails(self, action: str, **fields: Any) -> str:
        """The code of the error that an action of the client gives."""
        with pytest.raises(ClientError) as refused:
            getattr(self.client, action)(**fields)
        return str(refused.value.response["Error"]["Code"])
