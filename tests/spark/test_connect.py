"""Spark Connect: a real server on loopback, without a setting of ours, and clients as processes of their own."""

from __future__ import annotations

import itertools
import json
import os
import pickle
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from msgspec import Struct
from pyspark.sql import DataFrame

import skep
from skep.errors import SkepError
from skep.spark.java import java_home
from skep.spark.lake.place import place_of
from skep.spark.options import ServerConnection
from skep.spark.running.command_batches import CommandBatches
from skep.spark.session import PROXIES, start_session
from skep.testing.postgres import free_port
from skep.testing.server import RunningServer
from tests.spark.frames import shop_spec
from tests.spark.test_cluster import ROOT, SPARK, Cluster, part, ran

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
TENANTS = (f"connect-{number}" for number in itertools.count(1))
SPEC = shop_spec("check Positive { holds: cents > 100\n on_fail: drop }")


class Shop(Struct, frozen=True):
    """A server with a tenant of the test's own."""

    client: skep.Client
    url: str
    tenant: str


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("connect")
    port = free_port()
    environment = {
        **os.environ, "JAVA_HOME": str(java_home()), "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "SPARK_CONNECT_MODE": "0",
    }  # fmt: skip
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }  # fmt: skip
    arguments = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = ["--class", SERVER, "--master", "local[2]", *arguments, "spark-internal"]
    with part("SparkSubmit", submit, environment, "Spark Connect server started at"):
        yield Cluster(f"sc://127.0.0.1:{port}", environment, folder)


@pytest.fixture
def shop(spark_server: RunningServer) -> Iterator[Shop]:
    tenant = next(TENANTS)
    with skep.Client(spark_server.url, tenant=tenant) as client:
        yield Shop(client, spark_server.url, tenant)


def test_a_server_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(SkepError, match=rf"no Spark Connect server answers at 127\.0\.0\.1:{port} "):
            start_session(remote=f"sc://127.0.0.1:{port}")
    with pytest.raises(SkepError, match="is written sc://host:15002, not http://127"):
        start_session(remote="http://127.0.0.1:15002")


def test_a_server_that_does_not_see_the_checkpoint_is_told(tmp_path: Path) -> None:
    batches = CommandBatches(
        app="", queue="Placed", to=None, connection=ServerConnection(("http://127.0.0.1:1",), "default", None, 0.0),
        root=tmp_path, name="a", lake=place_of(str(tmp_path)),
    )  # fmt: skip
    with pytest.raises(SkepError, match=r"does not see .* as this machine does: put --lake"):
        pickle.loads(pickle.dumps(batches))(cast(DataFrame, None), 0)


@pytest.mark.slow
def test_reading_and_writing_streams_and_tables_over_connect(connect: Cluster, shop: Shop) -> None:
    shop.client.push("Placed", [{"number": number, "cents": 100 * number} for number in range(1, 51)])
    [message] = shop.client.pop("Placed", group="billing", batch=1)
    shop.client.ack(message)
    program = f"""
import json
from pyspark.errors import PySparkException
from skep.spark.columns.reading import has_reader
from skep.spark.session import start_session
spark = start_session(remote={connect.master!r})
to = {{"url": {shop.url!r}, "tenant": {shop.tenant!r}}}
def read(queue, **options):
    return spark.read.format("skep").options(**to, **options).load(queue)
told = {{"read": read("Placed").count(), "reader": has_reader(spark), "zone": spark.conf.get("spark.sql.session.timeZone")}}
for _ in range(2):
    rows = read("Placed", startingOffsets=json.dumps({{"Placed": 40}})).select("partition", "payload")
    rows.write.format("skep").options(**to).option("queue", "Copies").option("writeId", "once").mode("append").save()
told["copies"] = read("Copies").count()
for _ in range(2):
    query = spark.readStream.format("skep").options(**to, groupId="lake", maxOffsetsPerTrigger=20).load("Placed")
    query = query.select("partition", "payload").writeStream.format("skep").options(**to).option("queue", "Streamed")
    query.option("checkpointLocation", {str(connect.work / "checkpoint")!r}).trigger(availableNow=True).start().awaitTermination()
told["streamed"] = read("Streamed").count()
for table in ("queues", "groups", "leases", "dead_letters"):
    told[table] = spark.read.format("skep").options(**to).option("table", table).load().count()
try:
    read("Nowhere").count()
except PySparkException as error:
    told["error"] = str(error)
spark.stop()
print(json.dumps(told))
"""
    told = json.loads(ran(connect, "-c", program))

    assert "there is no queue 'Nowhere'" in told.pop("error")
    assert told == {
        "read": 50, "reader": True, "zone": "UTC", "copies": 10, "streamed": 50,
        "queues": 3, "groups": 2, "leases": 1, "dead_letters": 0,
    }  # fmt: skip
    assert sorted(one.seq for one in shop.client.messages("Streamed")) == list(range(1, 51))
    [lake] = [one for one in shop.client.groups("Placed") if one.consumer_group == "lake"]
    assert lake.progress_seq == 50


@pytest.mark.slow
def test_every_pipeline_runs_over_connect(connect: Cluster, shop: Shop, tmp_path: Path) -> None:
    shop.client.push("Placed", [{"number": number, "cents": 100 * number} for number in range(1, 11)])
    shop.client.push("Placed", {"number": 11, "cents": "many"})
    shop.client.push("007", {"number": 12})  # which is no number
    for message in shop.client.pop("Placed", group="billing", batch=3):
        shop.client.ack(message)
    spec = tmp_path / "shop.skep"
    spec.write_text(SPEC, encoding="utf-8")
    to = ["--url", shop.url, "--tenant", shop.tenant, "--lake", str(tmp_path / "lake")]
    names = ["archive", "metrics", "journeys", "commands", "dead-letters", "quality", "typed", "replay"]
    printed = ran(
        connect, "-m", "skep", "pipeline", "run", *names, "--queue", "Placed", "--queue", "007", "--spec", str(spec), "--to", "Orders", "--once",
        "--remote", connect.master, *to,
    )  # fmt: skip

    stages = {stage["name"]: stage for stage in json.loads(printed)["stages"]}
    assert stages.pop("metrics")["rows_out"] >= 1
    assert {name: (one["rows_in"], one["rows_out"], one["rejected"]) for name, one in stages.items()} == {
        "archive": (12, 12, 0), "journeys": (15, 12, 0), "commands": (11, 10, 1), "dead-letters": (1, 1, 0),
        "quality": (11, 9, 2), "typed": (11, 9, 2), "replay": (12, 12, 0),
    }  # fmt: skip
    orders = [json.loads(bytes(one.payload)) for one in shop.client.messages("Orders")]
    assert [one["euros"] for one in orders if "euros" in one] == list(range(1, 11))
    assert sorted(one["number"] for one in orders if "number" in one) == list(range(1, 13))
    assert [one.source_seq for one in shop.client.dead_letters("Placed")] == [11]
