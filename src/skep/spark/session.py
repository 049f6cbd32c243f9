"""A Spark session that is quick to start and quick with small batches.

Each setting made a measured difference. A session of your own needs none of them; you can copy them from `FAST`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from skep.errors import Code, SkepError
from skep.spark import environment
from skep.spark.interpreter import interpreter
from skep.spark.java import java_home
from skep.spark.jvm import (
    CATALOG_CLASS,
    CATALOG_SETTING,
    JAR,
    LOCAL_FILES,
    LOCAL_FILES_CLASS,
    READER_CLASS,
    READER_SETTING,
)
from skep.spark.shared_classes import sharing_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
CLASS_PATH = "spark.driver.extraClassPath"
PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
"""The Python of the tasks, and the Python that plans the reading of data sources."""
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
"""The environment variable that is set where the session must use a Java that runs already."""
CONF_FOLDERS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Folders that Spark puts before its jars on the class path."""

FAST: dict[str, str] = {
    # These save every Python task two waits of some 40 ms: on loopback TCP, and for the garbage collector.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "skep.spark.daemon",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # After each row that goes to Python, Spark measures the batch, and goes through all rows of it that have no map or list, such as
    # headers. The time grows with the square of the batch: 10,000 rows, the usual number, take twelve times as long as 1,000 at a time.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # A time means the same on every machine.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The JVM does not compile larger methods, and runs them at a tenth of the speed. With this limit Spark makes several methods.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # By default Spark lists each folder of a table in a task of its own: thousands of tasks for a lake of thousands of queues.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}
"""The settings of every session."""

LOCAL: dict[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.locality.wait": "0s",
    "spark.sql.shuffle.partitions": "{cores}",
    "spark.default.parallelism": "{cores}",
    "spark.driver.memory": "1500m",
}
"""The further settings of a session that runs on this machine alone."""

CLUSTER: dict[str, str] = {
    # Spark makes 200 partitions and joins small ones; those of a cached frame only with this setting.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}
"""The further settings of a session on a cluster: a tenth of the tasks where there are few rows."""

REMOTE: dict[str, str] = {name: value for name, value in (FAST | CLUSTER).items() if name.startswith("spark.sql.")}
"""The settings of a session on a Spark Connect server. All others are fixed when that server starts."""

SMALL: dict[str, str] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    # Spark writes each plan out as text for its pages, which a session of ours does not serve.
    "spark.sql.ui.explainMode": "simple",
}
"""Settings for some thousands of rows, where planning and compiling take longer than the work: they halve the time of a query with
many joins. All of them can be set in a running session."""

THROUGHPUT = "-XX:+UseParallelGC"
"""The garbage collector of all other runs on this machine: for rows of text a third faster than Java's default."""

QUICK_START: dict[str, str] = {
    # Java would keep 48 MB of compiled code here, which Spark fills in two minutes: then Java drops code that it has to compile again.
    # And while it loads Spark's classes, it would collect all garbage three times to make room for them.
    JAVA_OPTIONS: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=256m",
    # Spark would note the line of Python for each step of a column, which doubles the time of making one.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings for runs of a minute or two: the start takes a third less time, and the warm code is slower."""

TASK_ATTEMPTS = 4
"""How often a task is tried: Spark's default on a cluster."""

CLIENT = {"grpcio": "grpc", "grpcio-status": "grpc_status", "zstandard": "zstandard"}
"""The packages that a Spark Connect client needs besides pyspark, and the module of each."""
CONNECT_PORT = 15002
REACH_SECONDS = 10.0
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""Environment variables of proxies. Where one is set, only the proxy may reach the server."""

QUIET_LOGGER = "SQLQueryContextLogger"

SHORT_NAMES = ("functions", "PythonRDD", "PythonSQLUtils", "PythonUtils", "SerDeUtil", "SimplePythonFunction")
"""Java's classes that PySpark finds by short names, some of them for each column."""


def start_session(
    name: str = "skep",
    *,
    master: str = "local[*]",
    remote: str | None = None,
    quick_start: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A session on a master, by default on this machine, or on a Spark Connect server (``remote="sc://…"``).

    If this process has a session already, that one is used, whatever it was started with. ``config`` has Spark's own settings
    and wins over ours.
    """
    environment.check()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if remote is not None:
        _check_client(remote)
        session = builder.remote(remote).config(map={**REMOTE, **(config or {})}).getOrCreate()
        _send_jar(session)
        return session
    _prepare_environment(master)
    settings = with_java(master, {**settings_for(master, quick_start=quick_start), **(config or {})})
    if master.startswith("local"):
        if JAVA_OPTIONS not in (config or {}):
            settings[JAVA_OPTIONS] += f" {_sharing_options(settings)}"
        if _java_has(LOCAL_FILES_CLASS):
            settings = LOCAL_FILES | settings
    with _starting_python(master):
        session = builder.master(patient(master)).config(map={**settings}).getOrCreate()
    _silence(session)
    _keep_classes(session)
    return session


def settings_for(master: str, *, quick_start: bool = False) -> dict[str, str]:
    """Spark's settings for a master."""
    settings = dict(FAST)
    if master.startswith("local"):
        cores = str(cores_of(master))
        settings |= {name: value.replace("{cores}", cores) for name, value in LOCAL.items()}
        settings[JAVA_OPTIONS] = THROUGHPUT
    else:
        settings |= CLUSTER
    if quick_start:
        settings |= QUICK_START
    return settings


def with_java(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings, with our jar added to the jars that they name."""
    if master.startswith("local"):
        name, between = CLASS_PATH, os.pathsep
    else:
        name, between = "spark.jars", ","
    jars = between.join(filter(None, (settings.get(name), str(JAR))))
    return {READER_SETTING: READER_CLASS, CATALOG_SETTING: CATALOG_CLASS, **settings, name: jars}


def _java_has(name: str) -> bool:
    """Whether the session's Java has one of our classes. A Java that is yet to start will have it. A running Java, of an ended session
    or of `spark-submit`, may have been started without our jar.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - there is no public way to a Java without a session
    if gateway is None:
        return GATEWAY_PORT not in os.environ
    try:
        gateway.jvm.java.lang.Class.forName(name)
    except Py4JJavaError:
        return False
    return True


def _sharing_options(settings: Mapping[str, str]) -> str:
    """Java's options for sharing the classes that an earlier session loaded (see `shared_classes`)."""
    import pyspark

    spark = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    ours = [Path(part) for part in settings[CLASS_PATH].split(os.pathsep) if part]
    folders = [Path(os.environ[name]) for name in CONF_FOLDERS if os.environ.get(name)]
    return sharing_options(Path(os.environ["JAVA_HOME"]), [*ours, spark / "jars"], [*ours, *folders, spark / "conf"])


def patient(master: str) -> str:
    """A local master that retries failed tasks, as clusters do: plain `local[2]` gives up at the first killed worker."""
    inside = master.removeprefix("local[").removesuffix("]")
    if master == "local":
        inside = "1"
    elif not (master.startswith("local[") and inside.replace("*", "1").isdecimal()):
        return master
    return f"local[{inside},{TASK_ATTEMPTS}]"


def cores_of(master: str) -> int:
    """The number of tasks that a local master runs at once."""
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    if not inside:
        return 1
    return (os.cpu_count() or 1) if inside == "*" else int(inside)


def _prepare_environment(master: str) -> None:
    """Set the environment variables that Spark's launcher and its Python workers read before there is a session."""
    os.environ["JAVA_HOME"] = str(java_home())
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


@contextmanager
def _starting_python(master: str) -> Iterator[None]:
    """Let Spark start its Python processes by our quicker program, unless the user has named another Python.

    Spark reads the variables once, when the session starts. Afterwards they have their old values for other child processes.
    """
    ours = [name for name in PYTHONS if master.startswith("local") and os.environ.get(name) == sys.executable]
    if ours:
        os.environ.update(dict.fromkeys(ours, interpreter()))
    try:
        yield
    finally:
        os.environ.update(dict.fromkeys(ours, sys.executable))


def _check_client(remote: str) -> None:
    """Refuse a client that cannot work, at once: Spark would try for ten minutes before it says so."""
    if not remote.startswith("local"):
        _check_address(remote)
    missing = [package for package, module in CLIENT.items() if find_spec(module) is None]
    if missing:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"a Spark Connect client needs {', '.join(missing)}, not installed here: pip install 'skep[spark]'",
        )


def _check_address(remote: str) -> None:
    url = urlsplit(remote)
    if url.scheme != "sc" or url.hostname is None:
        raise SkepError(
            Code.INVALID_REQUEST, f"a Spark Connect server is written sc://host:{CONNECT_PORT}, not {remote}"
        )
    if any(os.environ.get(name) for name in PROXIES):
        return  # a proxy may reach what we cannot
    try:
        socket.create_connection((url.hostname, url.port or CONNECT_PORT), REACH_SECONDS).close()
    except OSError as error:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"no Spark Connect server answers at {url.hostname}:{url.port or CONNECT_PORT} ({error}); start one with "
            "start-connect-server.sh, or correct the address",
        ) from None


def _send_jar(session: SparkSession) -> None:
    """Send our jar to the server, for this session alone. A server that refuses jars has no catalog and uses Spark's own functions."""
    from pyspark.errors import PySparkException

    if session.conf.get(READER_SETTING, None) is not None:
        return
    with suppress(PySparkException):
        session.addArtifact(str(JAR))
        session.conf.set(READER_SETTING, READER_CLASS)
        if session.conf.get(CATALOG_SETTING, None) is None:
            session.conf.set(CATALOG_SETTING, CATALOG_CLASS)


def _silence(session: SparkSession) -> None:
    """Turn off Spark's log of errors: they reach the caller as exceptions. Nor does PySpark tell of a Java that a signal has ended."""
    session.sparkContext.setLogLevel("ERROR")
    jvm = session.sparkContext._jvm  # noqa: SLF001 - there is no public way to a logger
    if jvm is not None:
        level = jvm.org.apache.logging.log4j.Level.OFF
        jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(QUIET_LOGGER, level)
    server = session.sparkContext._accumulatorServer  # noqa: SLF001 - it writes a traceback to stderr when Java has ended
    if server is not None:
        setattr(server, "handle_error", partial(_tell_unless_ended, server.handle_error))  # noqa: B010 - a method


def _tell_unless_ended(tell: Callable[[Any, Any], None], request: Any, address: Any) -> None:
    """Let a server tell of an error, unless the other side has ended."""
    if not isinstance(sys.exception(), EOFError | ConnectionError):
        tell(request, address)


def _keep_classes(session: SparkSession) -> None:
    """Keep the classes that PySpark finds by short names: to find one, Java looks through all of Spark's jars, each time again."""
    jvm = session.sparkContext._jvm  # noqa: SLF001 - PySpark has no other place for them
    for name in SHORT_NAMES:
        setattr(jvm, name, getattr(jvm, name))
