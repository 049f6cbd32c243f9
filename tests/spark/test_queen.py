"""What a client of Queen pushed is read by Spark, and what Spark writes is popped by it."""

from __future__ import annotations

import httpx
import pytest

from skep.testing.server import RunningServer
from tests.spark.conftest import Lake


@pytest.mark.slow
def test_spark_reads_what_was_pushed_and_writes_what_is_popped(lake: Lake, spark_server: RunningServer) -> None:
    with httpx.Client(base_url=spark_server.queen_url, headers={"Skep-Tenant": lake.tenant}) as queen:
        items = [
            {"queue": "orders", "partition": "p", "payload": {"total": n}, "transactionId": f"t{n}"} for n in range(3)
        ]
        assert queen.post("/api/v1/push", json={"items": items}).status_code == 201
        for message in queen.get("/api/v1/pop/queue/orders?batch=2").json()["messages"]:
            ack = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
            assert queen.post("/api/v1/ack", json=ack).json()[0]["success"] is True

        rows = lake.read("orders").select("payload", "transaction_id", "partition").collect()
        assert sorted((row.transaction_id, row.payload, row.partition) for row in rows) == [
            (f"t{n}", f'{{"total":{n}}}', "p") for n in range(3)
        ]

        frame = lake.spark.createDataFrame([('{"total": 20}',)], "payload string")
        frame.write.format("skep").options(**lake.connection, queue="doubled").mode("append").save()
        [message] = queen.get("/api/v1/pop/queue/doubled").json()["messages"]
        assert (message["data"], message["transactionId"]) == ({"total": 20}, message["id"])
