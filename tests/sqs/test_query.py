"""The query protocol: forms and XML, as older SDKs speak it."""

from __future__ import annotations

import base64
import http.client
import tracemalloc
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import pytest

from skep.http.sqs import query_protocol
from skep.http.sqs.actions import ACTIONS
from skep.http.sqs.faults import SqsError
from tests.sqs.driver import Sqs

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


class Told(NamedTuple):
    """An answer in XML."""

    status: int
    root: ElementTree.Element

    def texts(self, name: str) -> list[str]:
        """The texts of all elements of this name."""
        return [one.text or "" for one in self.root.iter(NAMESPACE + name)]

    def text(self, name: str) -> str:
        [text] = self.texts(name)
        return text


def ask(sqs: Sqs, action: str, url: str | None = None, by_body: Any = True, **parameters: object) -> Told:
    """An action as a form: to the queue's URL, or to the root with the URL as a parameter."""
    given = {"Action": action, "Version": "2012-11-05"} | {
        name.replace("_", "."): str(value) for name, value in parameters.items()
    }
    path = "/"
    if url is not None and by_body:
        given["QueueUrl"] = url
    elif url is not None:
        path = urlsplit(url).path
    connection = http.client.HTTPConnection("127.0.0.1", sqs.server.port, timeout=30)
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8", "Skep-Tenant": sqs.tenant}
    connection.request("POST", path, urlencode(given), headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    assert response.getheader("content-type") == "text/xml"
    return Told(response.status, ElementTree.fromstring(body))


@pytest.mark.parametrize("by_body", [True, False])
def test_a_message_goes_through(sqs: Sqs, by_body: bool) -> None:
    url = ask(sqs, "CreateQueue", QueueName="q", Attribute_1_Name="VisibilityTimeout", Attribute_1_Value=77).text(
        "QueueUrl"
    )
    body = "<b>&\"'\r\n\tä\U0001f41d"
    sent = ask(
        sqs, "SendMessage", url, by_body, MessageBody=body, MessageAttribute_1_Name="n", MessageAttribute_1_Value_DataType="Number",
        MessageAttribute_1_Value_StringValue=7, MessageAttribute_2_Name="b", MessageAttribute_2_Value_DataType="Binary",
        MessageAttribute_2_Value_BinaryValue=base64.b64encode(b"\x00").decode(),
    )  # fmt: skip
    assert sent.root.tag == NAMESPACE + "SendMessageResponse"
    assert sent.text("RequestId")
    got = ask(
        sqs, "ReceiveMessage", url, by_body, AttributeName_1="All", MessageAttributeName_1="All", MaxNumberOfMessages=10
    )
    assert got.text("Body") == body
    assert got.text("MessageId") == sent.text("MessageId")
    assert got.text("MD5OfBody") == sent.text("MD5OfMessageBody")
    [message] = got.root.iter(NAMESPACE + "Message")
    attributes = {
        one.findtext(NAMESPACE + "Name"): one.findtext(NAMESPACE + "Value")
        for one in message.iter(NAMESPACE + "Attribute")
    }
    assert attributes["ApproximateReceiveCount"] == "1"
    named = {
        one.findtext(NAMESPACE + "Name"): [
            (part.tag.removeprefix(NAMESPACE), part.text) for part in one.find(NAMESPACE + "Value") or ()
        ]
        for one in message.iter(NAMESPACE + "MessageAttribute")
    }
    assert named == {
        "n": [("DataType", "Number"), ("StringValue", "7")],
        "b": [("DataType", "Binary"), ("BinaryValue", "AA==")],
    }
    done = ask(sqs, "DeleteMessage", url, by_body, ReceiptHandle=got.text("ReceiptHandle"))
    assert [one.tag for one in done.root] == [NAMESPACE + "ResponseMetadata"]
    assert sqs.attributes(url)["ApproximateNumberOfMessagesNotVisible"] == "0"
    assert sqs.attributes(url)["VisibilityTimeout"] == "77"


def test_batches(sqs: Sqs) -> None:
    url = sqs.create()
    entries = {
        f"SendMessageBatchRequestEntry.{n}.{name}": value
        for n in (1, 2, 10)
        for name, value in (("Id", f"e{n}"), ("MessageBody", n))
    }
    sent = ask(sqs, "SendMessageBatch", url, **entries, **{"SendMessageBatchRequestEntry.3.Id": "bad"})
    found = [
        [one.findtext(NAMESPACE + "Id") for one in sent.root.iter(NAMESPACE + name)]
        for name in ("SendMessageBatchResultEntry", "BatchResultErrorEntry")
    ]
    assert found == [["e1", "e2", "e10"], ["bad"]]
    assert sent.texts("SenderFault") == ["true"]
    handles = ask(sqs, "ReceiveMessage", url, MaxNumberOfMessages=10).texts("ReceiptHandle")
    assert len(handles) == 3
    hidden = {f"ChangeMessageVisibilityBatchRequestEntry.{n}.{name}": value for n, handle in enumerate(handles, 1) for name, value in (("Id", n), ("ReceiptHandle", handle), ("VisibilityTimeout", 99))}  # fmt: skip
    assert (
        len(
            list(
                ask(sqs, "ChangeMessageVisibilityBatch", url, **hidden).root.iter(
                    NAMESPACE + "ChangeMessageVisibilityBatchResultEntry"
                )
            )
        )
        == 3
    )
    gone = {f"DeleteMessageBatchRequestEntry.{n}.{name}": value for n, handle in enumerate(handles, 1) for name, value in (("Id", n), ("ReceiptHandle", handle))}  # fmt: skip
    assert (
        len(list(ask(sqs, "DeleteMessageBatch", url, **gone).root.iter(NAMESPACE + "DeleteMessageBatchResultEntry")))
        == 3
    )
    assert sqs.attributes(url)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_lists_and_maps(sqs: Sqs) -> None:
    url = ask(sqs, "CreateQueue", QueueName="q", Tag_1_Key="a", Tag_1_Value="b").text("QueueUrl")
    ask(sqs, "CreateQueue", QueueName="q2")
    assert ask(sqs, "ListQueues", QueueNamePrefix="q").texts("QueueUrl") == [url, url + "2"]
    page = ask(sqs, "ListQueues", MaxResults=1)
    assert (page.texts("QueueUrl"), page.texts("NextToken") != []) == ([url], True)
    ask(sqs, "TagQueue", url, Tag_1_Key="c", Tag_1_Value="d")
    ask(sqs, "UntagQueue", url, TagKey_1="a")
    tags = ask(sqs, "ListQueueTags", url)
    assert (tags.texts("Key"), tags.texts("Value")) == (["c"], ["d"])
    ask(sqs, "AddPermission", url, Label="l", AWSAccountId_1="111122223333", ActionName_1="SendMessage")
    assert "111122223333" in ask(sqs, "GetQueueAttributes", url, AttributeName_1="Policy").text("Value")
    ask(sqs, "SetQueueAttributes", url, Attribute_1_Name="DelaySeconds", Attribute_1_Value=3)
    told = ask(sqs, "GetQueueAttributes", url, AttributeName_1="DelaySeconds")
    assert (told.texts("Name"), told.texts("Value")) == (["DelaySeconds"], ["3"])


def test_errors_are_told_in_xml(sqs: Sqs) -> None:
    refused = ask(sqs, "GetQueueUrl", QueueName="<none>")
    assert (refused.status, refused.text("Code"), refused.text("Type")) == (
        400,
        "AWS.SimpleQueueService.NonExistentQueue",
        "Sender",
    )
    assert "<none>" in refused.text("Message")
    url = sqs.create()
    for parameters, code in (
        ({"MaxNumberOfMessages": "many"}, "InvalidParameterValue"),
        ({"MaxNumberOfMessages": "11"}, "InvalidParameterValue"),
        ({"AttributeName.x": "All"}, "MalformedQueryString"),
        ({"AttributeName": "All", "AttributeName.1": "All"}, "MalformedQueryString"),
        ({".".join("a" * 20): "deep"}, "MalformedQueryString"),
    ):
        assert ask(sqs, "ReceiveMessage", url, **parameters).text("Code") == code, parameters
    assert ask(sqs, "Nope").text("Code") == "InvalidAction"
    assert ask(sqs, "SendMessage").text("Code") == "MissingParameter"


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"Action", b"Action=SendMessage&Action=SendMessage", b"&" * 5_000, b"a=%ff"]
)
def test_what_is_no_form_is_refused(sqs: Sqs, body: bytes) -> None:
    reply = sqs.api.request("POST", "/", body, {"Content-Type": "application/x-www-form-urlencoded"})
    assert 400 <= reply.status < 500
    assert ElementTree.fromstring(reply.body).find(f".//{NAMESPACE}Code") is not None


@pytest.mark.parametrize("value", [b"%", b"a%", b"%4", b"%zz", b"%%41", b"%u0041", b"%\n41", b"%ff", b"\xc3\xa4"])
def test_a_form_with_broken_escapes_is_refused(value: bytes) -> None:
    for text in (b"MessageBody=" + value, value + b"=x"):
        with pytest.raises(SqsError) as refused:
            query_protocol.parameters(text)
        assert refused.value.fault.code == "MalformedQueryString"


def test_every_character_comes_out_of_a_form_as_it_went_in() -> None:
    text = "".join(map(chr, [*range(0x3000), *range(0xE000, 0x11000), 0x1F600])) + "=3D =\n=\r\n==%41 ="
    told = urlencode({"MessageBody": text, text: "x", "empty": ""}).encode()
    assert query_protocol.parameters(b"&" + told + b"&&alone") == {
        "MessageBody": text,
        text: "x",
        "empty": "",
        "alone": "",
    }
    assert query_protocol.parameters(b"a=%c3%A4") == {"a": "ä"}


def test_a_long_form_takes_a_small_multiple_of_its_length() -> None:
    """A message of 1 MiB takes three times that in a form; each escape as an object of its own took eighty times that."""
    form = b"MessageBody=" + b"%41" * 1_048_576
    tracemalloc.start()
    try:
        assert query_protocol.parameters(form) == {"MessageBody": "A" * 1_048_576}
        assert tracemalloc.get_traced_memory()[1] < 5 * len(form)
    finally:
        tracemalloc.stop()


def test_a_name_of_very_many_parts_is_refused_in_little_memory() -> None:
    given = {"Action": "ListQueues", "." * 1_048_576: "x"}
    tracemalloc.start()
    try:
        with pytest.raises(SqsError, match="too many parts"):
            query_protocol.read(ACTIONS["ListQueues"], given)
        assert tracemalloc.get_traced_memory()[1] < 5 * 1_048_576
    finally:
        tracemalloc.stop()


def test_every_action_is_known_to_the_sdk_and_no_other() -> None:
    import botocore.session

    known = botocore.session.get_session().get_service_model("sqs").operation_names
    assert sorted(ACTIONS) == sorted(known)
