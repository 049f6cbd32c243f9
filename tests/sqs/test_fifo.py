"""FIFO queues: groups in order, deduplication, sequence numbers, receive attempts."""

from __future__ import annotations

from tests.sqs.driver import Sqs


def send(sqs: Sqs, url: str, body: str, group: str = "g", dedup_id: str | None = None) -> dict[str, str]:
    return sqs.send(url, body, MessageGroupId=group, MessageDeduplicationId=dedup_id or body)


def test_a_group_is_in_order_and_held_back_while_one_is_in_flight(sqs: Sqs) -> None:
    url = sqs.create_fifo(VisibilityTimeout=10)
    numbers = [send(sqs, url, f"{group}{n}", group)["SequenceNumber"] for n in range(3) for group in "ab"]
    assert numbers == sorted(numbers)
    assert all(len(number) == 20 for number in numbers)
    first = sqs.receive(url, 1)
    assert [one["Body"] for one in first] == ["a0"]
    held = sqs.receive(url)
    assert [one["Body"] for one in held] == ["b0", "b1", "b2"]
    assert sqs.receive(url) == []
    told = held[0]["Attributes"]
    assert (told["MessageGroupId"], told["MessageDeduplicationId"], told["SequenceNumber"]) == ("b", "b0", numbers[1])
    sqs.delete(url, *first)
    assert [one["Body"] for one in sqs.receive(url)] == ["a1", "a2"]


def test_what_was_not_deleted_comes_again_before_what_follows(sqs: Sqs) -> None:
    url = sqs.create_fifo(VisibilityTimeout=10)
    for n in range(3):
        send(sqs, url, str(n))
    first, second, third = sqs.receive(url)
    sqs.delete(url, first)
    sqs.pass_seconds(11)
    order = []
    while found := sqs.receive(url):
        order += [one["Body"] for one in found]
        sqs.delete(url, *found)
    assert order == [second["Body"], third["Body"]]


def test_a_repeat_within_five_minutes_is_the_same_message(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    first = send(sqs, url, "one", "a", "same")
    again = send(sqs, url, "other body", "b", "same")  # in the whole queue, whatever the group
    assert (again["MessageId"], again["SequenceNumber"]) == (first["MessageId"], first["SequenceNumber"])
    sqs.pass_seconds(301)
    assert send(sqs, url, "later", "a", "same")["MessageId"] != first["MessageId"]
    assert sqs.bodies(url) == ["one", "later"]


def test_the_scope_of_deduplication_may_be_the_group(sqs: Sqs) -> None:
    url = sqs.create_fifo(DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    assert send(sqs, url, "1", "a", "same")["MessageId"] != send(sqs, url, "2", "b", "same")["MessageId"]
    assert sqs.attributes(url)["DeduplicationScope"] == "messageGroup"


def test_deduplication_by_content(sqs: Sqs) -> None:
    url = sqs.create_fifo(ContentBasedDeduplication="true")
    first = sqs.send(url, "same", MessageGroupId="g")
    assert sqs.send(url, "same", MessageGroupId="g")["MessageId"] == first["MessageId"]
    assert sqs.send(url, "other", MessageGroupId="g")["MessageId"] != first["MessageId"]
    assert sqs.bodies(url) == ["same", "other"]


def test_a_stale_handle_is_refused(sqs: Sqs) -> None:
    url = sqs.create_fifo(VisibilityTimeout=10)
    send(sqs, url, "1")
    [stale] = sqs.receive(url)
    sqs.pass_seconds(11)
    [message] = sqs.receive(url)
    assert sqs.fails("delete_message", QueueUrl=url, ReceiptHandle=stale["ReceiptHandle"]) == "InvalidParameterValue"
    sqs.delete(url, message, message)  # a repeat of a good one is none


def test_what_a_fifo_queue_needs_and_does_not_take(sqs: Sqs) -> None:
    url, standard = sqs.create_fifo(), sqs.create()
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="1", MessageDeduplicationId="1") == "MissingParameter"
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="1", MessageGroupId="g") == "InvalidParameterValue"
    both = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
    assert sqs.fails("send_message", QueueUrl=url, MessageBody="1", DelaySeconds=1, **both) == "InvalidParameterValue"
    assert sqs.fails("send_message", QueueUrl=standard, MessageBody="1", **both) == "InvalidParameterValue"


def test_a_delay_of_the_queue_delays_all(sqs: Sqs) -> None:
    url = sqs.create_fifo(DelaySeconds=10)
    send(sqs, url, "1")
    assert sqs.receive(url) == []
    sqs.pass_seconds(11)
    assert sqs.bodies(url) == ["1"]


def test_a_receive_that_is_tried_again_gets_the_same_messages(sqs: Sqs) -> None:
    url = sqs.create_fifo(VisibilityTimeout=10)
    send(sqs, url, "1")
    send(sqs, url, "2")
    first = sqs.receive(url, ReceiveRequestAttemptId="try")
    sqs.pass_seconds(9)
    again = sqs.receive(url, ReceiveRequestAttemptId="try")
    assert [one["ReceiptHandle"] for one in again] == [one["ReceiptHandle"] for one in first]
    sqs.pass_seconds(9)  # the second try began the timeout anew
    assert sqs.receive(url, ReceiveRequestAttemptId="another") == []
    sqs.delete(url, *again)
    assert sqs.receive(url, ReceiveRequestAttemptId="try") == []


def test_a_returned_message_returns_those_behind_it(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    for n in range(3):
        send(sqs, url, str(n))
    first, second, third = sqs.receive(url)
    entries = [
        {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"], "VisibilityTimeout": 0}
        for n, one in enumerate((second, third))
    ]
    sqs.delete(url, first)
    done = sqs.client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in done["Successful"]] == ["0", "1"]
    [again] = sqs.receive(url)
    assert (again["Body"], again["Attributes"]["ApproximateReceiveCount"]) == ("1", "2")
