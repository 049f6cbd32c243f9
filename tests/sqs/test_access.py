"""Access: requests are signed by keys of Skep; scopes, tenants, rates and the audit log hold as everywhere."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from skep.access.administering import KeyDesk
from skep.access.keys import access_key_id
from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.model.key import VERBS_OF, Grant, Role, Verb
from skep.testing.server import RunningServer, running_server
from tests.http.conftest import MANY_QUEUES
from tests.http.driver import Reply
from tests.sqs.driver import REGION, client
from tests.support.postgres import PostgresServer

TENANTS = (f"tenant-{number}" for number in itertools.count(1))


class SignedKey(NamedTuple):
    """A key of the SDKs of AWS, and the id by which it is revoked."""

    id: str
    access_key_id: str
    secret: str
    text: str


class Closed:
    """A server that asks for keys, and one tenant on it."""

    def __init__(self, server: RunningServer, tenant: str) -> None:
        self.server = server
        self.tenant = tenant

    def key(
        self, *verbs: Verb, queues: tuple[str, ...] = ("*",), tenant: str | None = None, rate: float | None = None
    ) -> SignedKey:
        grant = Grant(verbs or VERBS_OF[Role.ADMIN], (tenant or self.tenant,), queues)
        engine = self.server.engine
        minted = self.server.run(
            KeyDesk(engine.access, engine.now).make(
                None, "test", [grant], created_by="test", requests_per_second=rate, seal=engine.encryption.seal_secret
            )
        )
        return SignedKey(minted.record.id, access_key_id(minted.record.id), minted.text.rpartition("_")[2], minted.text)

    def client(self, key: SignedKey) -> Any:
        return client(self.server.url, None, key.access_key_id, key.secret)

    def send(self, request: AWSRequest) -> Reply:
        """Send a request as it stands."""
        parts = urlsplit(request.url)
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(request.method, path, request.data, dict(request.headers.items()))
        response = connection.getresponse()
        reply = Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
        connection.close()
        return reply


@pytest.fixture(scope="session")
def master_line() -> str:
    return new_master_line("first")


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def closed_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, master_line: str
) -> Iterator[RunningServer]:
    """A server that asks for keys, and has a master key."""
    access, masters = AccessSettings(required=True), MasterKeys(master_line)
    if request.param == "sqlite":
        store = str(tmp_path_factory.mktemp("sqs-access") / "skep.db")
        with running_server(store, access=access, masters=masters, limits=MANY_QUEUES) as server:
            yield server
        return
    postgres: PostgresServer = request.getfixturevalue("postgres_server")
    dsn = postgres.create_database(template=request.getfixturevalue("tables_to_copy"))
    with running_server(dsn, access=access, masters=masters, limits=MANY_QUEUES) as server:
        yield server
    postgres.drop_database(dsn)


@pytest.fixture
def closed(closed_server: RunningServer) -> Closed:
    return Closed(closed_server, next(TENANTS))


def code_of(call: Any, **fields: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**fields)
    return str(refused.value.response["Error"]["Code"])


def list_request(closed: Closed, body: bytes = b"{}") -> AWSRequest:
    headers = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
    return AWSRequest("POST", f"{closed.server.url}/", headers, body)


def signed(closed: Closed, key: SignedKey, request: AWSRequest | None = None, service: str = "sqs") -> AWSRequest:
    request = request or list_request(closed)
    SigV4Auth(Credentials(key.access_key_id, key.secret), service, REGION).add_auth(request)
    return request


def fault(reply: Reply) -> str:
    return str(reply.json["__type"]).rpartition("#")[2]


def test_a_signed_request_is_let_in_as_its_key(closed: Closed) -> None:
    sqs = closed.client(closed.key())
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    assert url.endswith(f"/sqs/{closed.tenant}/q")
    sqs.send_message(QueueUrl=url, MessageBody="1")
    [message] = sqs.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    assert message["Attributes"]["SenderId"].startswith("key:")
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert sqs.list_queues()["QueueUrls"] == [url]


def test_who_signs_nothing_or_with_something_made_up_is_refused(closed: Closed) -> None:
    key = closed.key()
    liar = key._replace(access_key_id="SKEP" + "0" * 16)
    thief = key._replace(secret="x" * 43)
    assert code_of(closed.client(liar).list_queues) == "InvalidClientTokenId"
    assert code_of(closed.client(key._replace(access_key_id="AKIAX")).list_queues) == "InvalidClientTokenId"
    assert code_of(closed.client(thief).list_queues) == "SignatureDoesNotMatch"
    reply = closed.send(list_request(closed))
    assert (reply.status, fault(reply)) == (403, "MissingAuthenticationToken")
    bearer = list_request(closed)
    bearer.headers["Authorization"] = f"Bearer {key.text}"
    assert fault(closed.send(bearer)) == "IncompleteSignature"


def test_a_key_that_was_not_made_for_it_signs_nothing(closed: Closed) -> None:
    engine = closed.server.engine
    minted = closed.server.run(
        KeyDesk(engine.access, engine.now).make(
            None, "test", [Grant(VERBS_OF[Role.ADMIN], (closed.tenant,))], created_by="test"
        )
    )
    secret = minted.text.rpartition("_")[2]
    sqs = client(closed.server.url, None, access_key_id(minted.record.id), secret)
    assert code_of(sqs.list_queues) == "InvalidClientTokenId"


@pytest.mark.parametrize("what", ["body", "target", "path", "host", "date", "tenant", "query", "method"])
def test_what_was_changed_on_the_way_is_refused(closed: Closed, what: str) -> None:
    request = signed(closed, closed.key())
    assert closed.send(request).status == 200
    match what:
        case "body":
            request.data = b'{"MaxResults":1}'
        case "target":
            request.headers.replace_header("X-Amz-Target", "AmazonSQS.CreateQueue")
        case "path":
            request.url = f"{closed.server.url}/sqs/{closed.tenant}/q"
        case "host":
            request.headers["Host"] = "localhost:1"
        case "date":
            date = request.headers["X-Amz-Date"]
            request.headers.replace_header("X-Amz-Date", date[:-2] + ("0Z" if date[-2] != "0" else "1Z"))
        case "tenant":
            request.headers["Skep-Tenant"] = "other"
        case "query":
            request.url = f"{closed.server.url}/?x=1"
        case "method":
            request.method = "GET"
            request.url = f"{closed.server.url}/sqs/{closed.tenant}/q"
    reply = closed.send(request)
    assert reply.status == 403
    assert b"SignatureDoesNotMatch" in reply.body


@pytest.mark.parametrize("minutes", [-16, 16])
def test_a_request_of_another_time_is_refused_also_when_it_was_captured(
    closed: Closed, minutes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import UTC, datetime, timedelta

    import botocore.auth

    then = datetime.now(UTC) + timedelta(minutes=minutes)
    if hasattr(botocore.auth, "get_current_datetime"):
        monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: then.replace(tzinfo=None))
    else:
        pytest.fail("botocore takes its time from elsewhere")
    reply = closed.send(signed(closed, closed.key()))
    assert (reply.status, fault(reply)) == (400, "RequestExpired")


def test_a_payload_that_is_not_signed_is_refused(closed: Closed) -> None:
    key = closed.key()
    for digest in ("UNSIGNED-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", hashlib.sha256(b"other").hexdigest()):
        request = list_request(closed)
        request.headers["X-Amz-Content-SHA256"] = digest
        reply = closed.send(signed(closed, key, request))
        assert (reply.status, fault(reply)) == (403, "SignatureDoesNotMatch")
    request = list_request(closed)
    request.headers["X-Amz-Content-SHA256"] = hashlib.sha256(b"{}").hexdigest()
    assert closed.send(signed(closed, key, request)).status == 200


def test_a_signature_for_another_service_is_refused(closed: Closed) -> None:
    assert fault(closed.send(signed(closed, closed.key(), service="s3"))) == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "shown",
    [
        "", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=a", "AWS4-HMAC-SHA256 Credential=a/b/c, SignedHeaders=host, Signature=0",
        "AWS4-HMAC-SHA256 Credential=a/20260101/r/sqs/aws4_request, SignedHeaders=host, Signature=" + "g" * 64, "Basic eDp5", "\xff",
        "AWS4-HMAC-SHA256 " + "Credential=a," * 500,
    ],
)  # fmt: skip
def test_what_is_no_signature_is_refused(closed: Closed, shown: str) -> None:
    request = list_request(closed)
    request.headers["Authorization"] = shown
    reply = closed.send(request)
    assert reply.status in (400, 403)
    assert fault(reply) == "IncompleteSignature"


def presigned(
    closed: Closed, key: SignedKey, queue: str, action: str, expires: int = 60, body: str = "a%20b%2Fc"
) -> AWSRequest:
    url = f"{closed.server.url}/sqs/{closed.tenant}/{queue}?Action={action}&Version=2012-11-05&MessageBody={body}"
    request = AWSRequest("GET", url)
    SigV4QueryAuth(Credentials(key.access_key_id, key.secret), "sqs", REGION, expires).add_auth(request)
    return request


def test_a_presigned_url_is_good_for_its_time(closed: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    key = closed.key()
    sqs = closed.client(key)
    url = sqs.create_queue(QueueName="q")["QueueUrl"]
    request = presigned(closed, key, "q", "SendMessage")
    reply = closed.send(request)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/xml")
    assert b"<MessageId>" in reply.body
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "a b/c"
    request.url = request.url.replace("a%20b", "a%20c")
    assert b"SignatureDoesNotMatch" in closed.send(request).body
    plus = presigned(closed, key, "q", "SendMessage", body="a%2Bb")
    plus.url = plus.url.replace("a%2Bb", "a+b")  # to who reads it, this is a space
    assert b"SignatureDoesNotMatch" in closed.send(plus).body
    for expires in (0, 604_801):
        assert b"IncompleteSignature" in closed.send(presigned(closed, key, "q", "SendMessage", expires)).body
    endless = presigned(closed, key, "q", "SendMessage")
    endless.url = endless.url.replace("Expires=60", "Expires=" + "9" * 5_000)
    assert b"IncompleteSignature" in closed.send(endless).body
    from datetime import UTC, datetime, timedelta

    import botocore.auth

    then = datetime.now(UTC) - timedelta(seconds=61)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_, **__: then.replace(tzinfo=None))
    assert b"RequestExpired" in closed.send(presigned(closed, key, "q", "SendMessage")).body
    assert closed.send(presigned(closed, key, "q", "SendMessage", 90)).status == 200


def test_a_presigned_url_is_told_the_region_that_it_was_signed_for(closed: Closed) -> None:
    key = closed.key()
    closed.client(key).create_queue(QueueName="q")
    reply = closed.send(presigned(closed, key, "q", "GetQueueAttributes&AttributeName.1=QueueArn"))
    assert f"<Value>arn:aws:sqs:{REGION}:{closed.tenant}:q</Value>".encode() in reply.body


@pytest.mark.parametrize(
    ("verbs", "allowed"),
    [
        ((Verb.PUSH,), {"send_message", "send_message_batch", "get_queue_url"}),
        ((Verb.POP,), {"receive_message", "delete_message", "delete_message_batch", "change_message_visibility", "get_queue_url"}),
        ((Verb.READ,), {"get_queue_attributes", "list_queue_tags", "list_dead_letter_source_queues", "get_queue_url"}),
        (
            (Verb.ADMIN,),
            {"create_queue", "set_queue_attributes", "tag_queue", "untag_queue", "add_permission", "remove_permission",
             "purge_queue", "delete_queue", "get_queue_url"},
        ),
    ],
)  # fmt: skip
def test_each_action_needs_its_verb_on_its_queue(closed: Closed, verbs: tuple[Verb, ...], allowed: set[str]) -> None:
    admin, url = closed.client(closed.key()), ""
    for name in ("mine", "other"):
        url = admin.create_queue(QueueName=name)["QueueUrl"]
        admin.send_message(QueueUrl=url, MessageBody="1")
        admin.add_permission(QueueUrl=url, Label="old", AWSAccountIds=["1"], Actions=["*"])
    handle = admin.receive_message(QueueUrl=url)["Messages"][0]["ReceiptHandle"]
    own_handle = admin.receive_message(QueueUrl=url.replace("other", "mine"))["Messages"][0]["ReceiptHandle"]
    sqs = closed.client(closed.key(*verbs, queues=("mine",)))
    for name in ("other", "mine"):
        at: dict[str, Any] = {"QueueUrl": url.replace("other", name)}
        entry = {"Id": "1", "ReceiptHandle": handle if name == "other" else own_handle}
        calls: dict[str, dict[str, Any]] = {
            "send_message": {**at, "MessageBody": "1"},
            "send_message_batch": {**at, "Entries": [{"Id": "1", "MessageBody": "1"}]},
            "receive_message": at,
            "change_message_visibility": {**at, "ReceiptHandle": entry["ReceiptHandle"], "VisibilityTimeout": 9},
            "delete_message": {**at, "ReceiptHandle": entry["ReceiptHandle"]},
            "delete_message_batch": {**at, "Entries": [entry]},
            "get_queue_attributes": {**at, "AttributeNames": ["All"]},
            "list_queue_tags": at,
            "list_dead_letter_source_queues": at,
            "get_queue_url": {"QueueName": name},
            "create_queue": {"QueueName": name},
            "set_queue_attributes": {**at, "Attributes": {"DelaySeconds": "1"}},
            "tag_queue": {**at, "Tags": {"a": "b"}},
            "untag_queue": {**at, "TagKeys": ["a"]},
            "add_permission": {**at, "Label": "l", "AWSAccountIds": ["1"], "Actions": ["*"]},
            "remove_permission": {**at, "Label": "old"},
            "purge_queue": at,
            "delete_queue": at,
        }
        for action, fields in calls.items():
            if name == "mine" and action in allowed:
                getattr(sqs, action)(**fields)
            else:
                assert code_of(getattr(sqs, action), **fields) == "AccessDenied", action


def test_no_list_tells_of_a_queue_that_may_not_be_seen(closed: Closed) -> None:
    admin = closed.client(closed.key())
    urls = [admin.create_queue(QueueName=name)["QueueUrl"] for name in ("mine", "secret")]
    sqs = closed.client(closed.key(Verb.READ, queues=("mine",)))
    assert sqs.list_queues()["QueueUrls"] == urls[:1]
    assert code_of(sqs.get_queue_url, QueueName="none") == code_of(sqs.get_queue_url, QueueName="secret")


def test_a_key_of_another_tenant_is_refused(closed: Closed) -> None:
    url = closed.client(closed.key()).create_queue(QueueName="q")["QueueUrl"]
    other = closed.client(closed.key(tenant=closed.tenant + "x"))
    assert code_of(other.send_message, QueueUrl=url, MessageBody="1") == "AccessDenied"
    assert code_of(other.get_queue_url, QueueName="q", QueueOwnerAWSAccountId=closed.tenant) == "AccessDenied"
    assert other.create_queue(QueueName="q")["QueueUrl"] != url


def test_a_move_task_moves_nothing_to_where_its_key_may_not_push(closed: Closed) -> None:
    """Not to a queue either that names the dead-letter queue no more."""
    sqs = closed.client(closed.key())
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = f"arn:aws:sqs:{REGION}:{closed.tenant}:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    url = sqs.create_queue(QueueName="q", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="1")
    [message] = sqs.receive_message(QueueUrl=url)["Messages"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    other = closed.client(closed.key(queues=("dead",)))
    other.start_message_move_task(SourceArn=arn)
    while (task := other.list_message_move_tasks(SourceArn=arn)["Results"][0])["Status"] == "RUNNING":
        pass
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "not allowed to push to queue 'q'")
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    assert [one["Body"] for one in sqs.receive_message(QueueUrl=dead)["Messages"]] == ["1"]


def test_a_move_task_does_not_tell_which_queues_there_are(closed: Closed) -> None:
    sqs = closed.client(closed.key())
    dead = f"arn:aws:sqs:{REGION}:{closed.tenant}:dead"
    policy = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 1})
    sqs.create_queue(QueueName="dead")
    sqs.create_queue(QueueName="q", Attributes={"RedrivePolicy": policy})
    sqs.create_queue(QueueName="secret")
    sqs.create_queue(QueueName="secret.fifo", Attributes={"FifoQueue": "true"})
    other = closed.client(closed.key(queues=("dead",)))
    for name in ("secret", "secret.fifo", "none"):
        at = dead.replace("dead", name)
        assert code_of(other.start_message_move_task, SourceArn=dead, DestinationArn=at) == "AccessDenied"
        assert code_of(other.list_message_move_tasks, SourceArn=at) == "AccessDenied"


def test_a_revoked_key_signs_nothing_more(closed: Closed) -> None:
    key = closed.key()
    sqs = closed.client(key)
    sqs.list_queues()
    closed.server.run(closed.server.engine.access.revoke_key(key.id))
    assert code_of(sqs.list_queues) == "InvalidClientTokenId"


def test_the_rate_of_a_key_holds(closed: Closed) -> None:
    sqs = closed.client(closed.key(rate=1.0))
    codes = set()
    for _ in range(50):
        try:
            sqs.list_queues()
        except ClientError as error:
            codes.add(error.response["Error"]["Code"])
    assert codes == {"RequestThrottled"}


def test_what_admins_do_is_in_the_audit_log(closed: Closed) -> None:
    key = closed.key()
    sqs = closed.client(key)
    url = sqs.create_queue(QueueName="audited")["QueueUrl"]
    sqs.purge_queue(QueueUrl=url)
    sqs.delete_queue(QueueUrl=url)
    assert code_of(sqs.delete_queue, QueueUrl=url) == "AWS.SimpleQueueService.NonExistentQueue"
    found = closed.server.run(closed.server.engine.access.list_audit(closed.tenant))
    told = [(one.action, one.actor, one.queues, one.outcome, one.detail and one.detail.verb) for one in reversed(found)]
    assert told == [
        (f"SQS {action}", f"key:{key.id}", ("audited",), outcome, verb)
        for action, outcome, verb in (
            ("CreateQueue", "done", "create queue"), ("PurgeQueue", "done", "clear queue"), ("DeleteQueue", "done", "delete queue"),
            ("DeleteQueue", "failed", "delete queue"),
        )
    ]  # fmt: skip


def test_who_administers_nothing_fills_no_audit_log(closed: Closed) -> None:
    sqs = closed.client(closed.key(Verb.PUSH, Verb.POP, Verb.READ))
    assert code_of(sqs.create_queue, QueueName="q") == "AccessDenied"
    assert closed.server.run(closed.server.engine.access.list_audit(closed.tenant)) == []


def test_the_secret_is_not_in_the_store_in_the_clear(closed: Closed) -> None:
    key = closed.key()
    record = closed.server.run(closed.server.engine.access.get_key(key.id))
    assert record is not None
    assert key.secret.encode() not in record.document
    assert json.loads(record.document)["secret"]["master"] == "first"


def test_a_native_call_by_the_same_key(closed: Closed) -> None:
    """A key that signs is a key as any other: its text opens the native interface."""
    key = closed.key()
    request = AWSRequest("GET", f"{closed.server.url}/api/v1/resources/queues", {"Authorization": f"Bearer {key.text}"})
    assert closed.send(request).status == 200
