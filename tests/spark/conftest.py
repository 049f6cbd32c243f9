"""One Spark for the whole run, since it takes long to start, and with it one worker for all of these tests."""

from __future__ import annotations

import itertools
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

import skep
from skep.spark.session import CLASS_PATH, JAVA_OPTIONS, QUICK_START, SMALL, start_session
from skep.testing.server import RunningServer, running_server
from tests.support import s3

FOLDER = Path(__file__).parent
USUAL = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.ui.explainMode": "formatted",
}
"""What `SMALL` is by default."""
ONE_TASK = {"spark.default.parallelism": "1"}
"""A frame that a test makes of some rows is one task. What it reads of queues is as many as for anyone."""
FIRST_JARS = ("catalyst", "sql_", "core", "sql-api", "common-utils_", "unsafe")
"""Those of Spark's jars that have most of the classes: Java looks for a class in one jar after the other."""
JAVA = f"{QUICK_START[JAVA_OPTIONS]} -Xmn600m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Java loads classes without a check, and writes none for a later session, which takes a fourth of a session's start."""
TENANTS = (f"spark-{number}" for number in itertools.count(1))


class Lake(Struct, frozen=True):
    """A server with a tenant of the test's own, as Spark sees it."""

    spark: SparkSession
    client: skep.Client
    url: str
    tenant: str
    folder: Path

    @property
    def connection(self) -> dict[str, str]:
        return {"url": self.url, "tenant": self.tenant, "retrySeconds": "20"}

    def read(self, queue: str, **options: Any) -> DataFrame:
        return self.spark.read.format("skep").options(**self.connection, **options).load(queue)

    def stream(self, queue: str, **options: Any) -> DataFrame:
        return self.spark.readStream.format("skep").options(**self.connection, waitSeconds="0.2", **options).load(queue)


@pytest.fixture(scope="session")
def store_socket() -> Iterator[socket.socket]:
    """The address of an S3, which Spark's workers know from their start."""
    with s3.reserved() as bound:
        yield bound


@pytest.fixture(scope="session")
def catalog_socket() -> Iterator[socket.socket]:
    """The address of a REST catalog of Iceberg."""
    with s3.reserved() as bound:
        yield bound


@pytest.fixture(scope="session")
def spark(store_socket: socket.socket, catalog_socket: socket.socket) -> Iterator[SparkSession]:
    """The session of all tests, with the settings for few rows: stop it in none."""
    # The Python workers find this checkout as the tests do.
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(FOLDER.parents[1] / "src"), str(FOLDER.parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    # They inherit the address of an S3, too, which only the tests that use it start.
    os.environ |= s3.environment(store_socket, catalog_socket)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_session(
            "skep tests",
            master="local[2]",
            quick_start=True,
            config=SMALL | ONE_TASK | {JAVA_OPTIONS: JAVA, CLASS_PATH: os.pathsep.join(first_jars())},
        )
        session.sparkContext.setLogLevel("OFF")  # what goes wrong on purpose need not be told
        yield session
        session.stop()


def first_jars() -> list[str]:
    jars = Path(pyspark.__file__).parent / "jars"
    return [str(jar) for name in FIRST_JARS for jar in sorted(jars.glob(f"spark-{name}*.jar"))]


@pytest.fixture
def usual_settings(spark: SparkSession) -> Iterator[None]:
    """Spark as users have it, which compiles each query: with a handful of rows, nearly all of its time."""
    for name, value in USUAL.items():
        spark.conf.set(name, value)
    yield
    for name, value in SMALL.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def spark_server() -> Iterator[RunningServer]:
    """A server that lasts the session: stop none of its parts."""
    with running_server(queen=True) as running:
        yield running


@pytest.fixture(scope="session")
def object_store(spark: SparkSession, store_socket: socket.socket) -> Iterator[s3.Store]:
    """An S3 on this machine, which needs some seconds to start."""
    spark.range(1)  # its start told the workers the address
    with s3.serving(store_socket) as store:
        yield store


@pytest.fixture(scope="session")
def rest_catalog(
    object_store: s3.Store, catalog_socket: socket.socket, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[s3.Store]:
    """A REST catalog on this machine, whose tables are in the S3."""
    with s3.running(catalog_socket, "tests.support.rest_catalog", str(tmp_path_factory.mktemp("catalog"))) as catalog:
        yield catalog


@pytest.fixture
def lake(spark: SparkSession, spark_server: RunningServer, tmp_path: Path) -> Iterator[Lake]:
    """Spark beside an empty server."""
    tenant = next(TENANTS)
    with skep.Client(spark_server.url, tenant=tenant) as client:
        yield Lake(spark, client, spark_server.url, tenant, tmp_path)
