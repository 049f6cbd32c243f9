"""What was sent by Amazon SQS's interface is read by Spark, and what Spark writes is received by it."""

from __future__ import annotations

import pytest

from tests.spark.conftest import Lake
from tests.sqs.driver import client


@pytest.mark.slow
def test_spark_reads_what_was_sent_and_writes_what_is_received(lake: Lake) -> None:
    sqs = client(lake.url, lake.tenant)
    url = sqs.create_queue(QueueName="orders")["QueueUrl"]
    attributes = {"kind": {"DataType": "String", "StringValue": "order"}}
    for n in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=f'{{"total": {n}}}', MessageAttributes=attributes)
    for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    rows = lake.read("orders").select("payload", "headers").collect()
    assert sorted(row.payload for row in rows) == [f'{{"total": {n}}}' for n in range(3)]
    assert {row.headers["kind"] for row in rows} == {"order"}

    written = sqs.create_queue(QueueName="doubled")["QueueUrl"]
    frame = lake.spark.createDataFrame(
        [('{"total": 20}', {"from": "spark"})], "payload string, headers map<string, string>"
    )
    frame.write.format("skep").options(**lake.connection, queue="doubled").mode("append").save()
    [message] = sqs.receive_message(QueueUrl=written, MessageAttributeNames=["All"])["Messages"]
    assert message["Body"] == '{"total": 20}'
    assert message["MessageAttributes"] == {"from": {"DataType": "String", "StringValue": "spark"}}
