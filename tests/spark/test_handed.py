"""Tasks read logs in Java for as long as nothing is unusual, with few requests and the rows of the reader in Python, which gets what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import itemgetter
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import skep
from skep.spark import handed
from skep.spark.options import source_options
from tests.spark.conftest import Lake
from tests.spark.test_push_down import leaves

QUEUE = "orders"
ROWS = 12_000
"""More than two batches of the server."""
JAVA, PYTHON = "skep-spark", "skep-python"
LOG, BOUNDS = "log", "bounds"
TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"


class Between:
    """A server between Spark and Skep. It notes who asks for what, and ends answers early when it is told to."""

    def __init__(self, url: str) -> None:
        self.url = ""
        self.asked: list[tuple[str, str]] = []
        """The program and the kind of each request."""
        self.cut_java_after: int | None = None
        self.refuse_java = False
        self.shorten_first = False
        """Whether the first answer with messages has only its first batch, and ends as if it were whole."""
        self.before_end: Callable[[], object] | None = None
        """Is called when Java looks at the log for the second time, after it has read everything."""
        self._to = url
        self._open = build_opener(ProxyHandler({})).open

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        agent = handler.headers["User-Agent"].partition("/")[0]
        kind = self._kind(urlsplit(handler.path).path)
        self.asked.append((agent, kind))
        if self.before_end is not None and self.asked.count((JAVA, BOUNDS)) == 2:
            self.before_end()
            self.before_end = None
        if agent == JAVA and self.refuse_java:
            handler.send_error(503)
            return
        body = handler.rfile.read(int(handler.headers["Content-Length"] or 0)) or None
        headers = {name: value for name, value in handler.headers.items() if name not in ("Host", "Connection")}
        try:
            with self._open(Request(self._to + handler.path, body, headers, method=handler.command)) as found:
                status, answer, media = found.status, found.read(), found.headers["Content-Type"]
        except HTTPError as error:
            status, answer, media = error.code, error.read(), error.headers["Content-Type"]
        if kind == LOG and self.shorten_first:
            self.shorten_first = False
            answer = first_batch(answer)
        handler.send_response(status)
        handler.send_header("Content-Type", media)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        is_cut = agent == JAVA and kind == LOG and self.cut_java_after is not None
        handler.wfile.write(answer[: self.cut_java_after] if is_cut else answer)

    @staticmethod
    def _kind(path: str) -> str:
        if path.endswith("/bounds"):
            return BOUNDS
        return LOG if path.startswith("/api/v1/log/") else path

    def asked_for(self, kind: str) -> Counter[str]:
        """How often each program asked for it."""
        return Counter(agent for agent, asked in self.asked if asked == kind)


def first_batch(stream: bytes) -> bytes:
    """The beginning of an Arrow stream, without an end."""
    with pa.ipc.open_stream(stream) as reader:
        batch = reader.read_next_batch()
    return b"".join((batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()))


@contextmanager
def between(url: str) -> Iterator[Between]:
    found = Between(url)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.answer(self)

        def do_POST(self) -> None:
            found.answer(self)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def front(lake: Lake) -> Iterator[Between]:
    with between(lake.url) as found:
        yield found


def fill(client: skep.Client, rows: int = ROWS) -> None:
    for first in range(1, rows + 1, 1_000):
        numbers = range(first, min(first + 1_000, rows + 1))
        client.push(QUEUE, [skep.NewMessage({"n": n}, partition=f"p-{n % 4}") for n in numbers])


def read(lake: Lake, front: Between, **options: Any) -> DataFrame:
    return lake.spark.read.format("skep").options(**lake.connection | {"url": front.url}, **options).load(QUEUE)


def seqs(frame: DataFrame) -> list[int]:
    """Without a sort by Spark, which may read twice: once for its ranges."""
    return sorted(row[0] for row in frame.select("seq").collect())


def test_all_values_are_those_that_python_reads(lake: Lake) -> None:
    lake.client.push(
        QUEUE, {"ä": "🐝"}, partition="p-ü", transaction_id="t-1", headers={"a": "1", "b": 'x"y'}, trace_id=TRACE
    )
    lake.client.push(QUEUE, "", headers={})
    lake.client.push(QUEUE, "same", headers={"a": "1", "b": 'x"y'})
    lake.client.push(QUEUE, b"\x00\xff", content_type="application/octet-stream")
    columns = "headers,queue,payload,trace_id,seq,created_at,content_type,message_id,transaction_id,partition"

    by_java = lake.read(QUEUE, columns=columns)
    by_python = lake.read(QUEUE, columns=columns, compression="lz4")

    assert handed.is_possible(source_options({**lake.connection, "subscribe": QUEUE}))
    for others in (
        {"compression": "lz4"},
        {"failOnShredded": "false"},
        {"typed": "true"},
        {"lake": "/lake"},
        {"url": "https://host"},
    ):
        assert not handed.is_possible(source_options({**lake.connection, "subscribe": QUEUE, **others})), others
    found = by_java.selectExpr("* except (payload)", "hex(payload)").orderBy("seq").collect()
    assert found == by_python.selectExpr("* except (payload)", "hex(payload)").orderBy("seq").collect()
    assert [row["headers"] for row in found] == [{"a": "1", "b": 'x"y'}, {}, {"a": "1", "b": 'x"y'}, None]
    assert by_java.where("seq = 1").selectExpr("headers['b']", "size(headers)").first() == ('x"y', 2)


def test_a_query_makes_few_requests_and_its_task_none_in_python(lake: Lake, front: Between) -> None:
    fill(lake.client)
    frame = read(lake, front).where("seq BETWEEN 2 AND 11")
    frame.collect()
    front.asked.clear()

    assert seqs(frame) == list(range(2, 12))

    assert front.asked == [(PYTHON, BOUNDS), (JAVA, LOG), (JAVA, BOUNDS)]


def test_a_query_without_rows_asks_for_none(lake: Lake, front: Between) -> None:
    fill(lake.client, 3)

    assert seqs(read(lake, front).where("seq > 3")) == []

    assert not front.asked_for(LOG)


@pytest.mark.parametrize("cut", [100, 60_000])
def test_what_java_leaves_is_read_in_python(lake: Lake, front: Between, cut: int) -> None:
    fill(lake.client)
    frame = read(lake, front, minPartitions="1")
    front.cut_java_after = cut

    assert seqs(frame) == list(range(1, ROWS + 1))

    assert front.asked_for(LOG) == {JAVA: 1, PYTHON: 1}


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}], ids=["Java", "Python"])
def test_an_answer_that_was_cut_between_two_batches_is_not_taken_for_whole(
    lake: Lake, front: Between, options: dict[str, str]
) -> None:
    fill(lake.client)
    frame = read(lake, front, minPartitions="1", **options)
    front.shorten_first = True

    assert seqs(frame) == list(range(1, ROWS + 1))

    assert front.asked_for(LOG).total() == 2


def test_what_a_server_refuses_is_asked_again_in_python(lake: Lake, front: Between) -> None:
    lake.client.push(QUEUE, {"n": 1}, headers={"a": "1"}, transaction_id="t-1", trace_id=TRACE)
    lake.client.push(QUEUE, {"n": 2})
    expected = lake.read(QUEUE).collect()
    front.refuse_java = True

    found = read(lake, front).collect()

    assert sorted(found, key=itemgetter("seq")) == sorted(expected, key=itemgetter("seq"))
    assert front.asked_for(LOG) == {JAVA: 1, PYTHON: 1}


def test_a_queue_that_is_remade_before_it_is_read_is_told_of(lake: Lake) -> None:
    fill(lake.client, 10)
    frame = lake.read(QUEUE)
    frame.where("seq = 1").collect()  # it has its range now
    planned = frame.where("seq < 9")
    planned._jdf.queryExecution().executedPlan().execute().getNumPartitions()
    lake.client.delete_queue(QUEUE)
    fill(lake.client, 10)

    with pytest.raises(PySparkException, match="was deleted and made anew"):
        planned.collect()


def test_a_gap_in_a_log_that_lost_nothing_is_no_reason_to_stop(lake: Lake, front: Between) -> None:
    fill(lake.client, 30)

    assert seqs(read(lake, front).where("partition = 'p-3'")) == list(range(3, 31, 4))

    assert front.asked_for(LOG) == {JAVA: 1}


def far_apart(lake: Lake, front: Between, **options: Any) -> DataFrame:
    """Messages that come in three batches, with gaps before and between them."""
    fill(lake.client)
    traces = {row["seq"]: row["trace_id"] for row in lake.read(QUEUE).where("seq IN (2, 6000, 12000)").collect()}
    return read(lake, front, minPartitions="1", **options).where(f"trace_id IN {tuple(traces.values())}")


def test_gaps_cost_a_request_at_the_first_one_and_one_at_the_end(lake: Lake, front: Between) -> None:
    frame = far_apart(lake, front)
    front.asked.clear()

    assert seqs(frame) == [2, 6000, 12000]

    assert front.asked_for(LOG) == {JAVA: 1}
    assert front.asked_for(BOUNDS)[JAVA] == 2


def test_a_gap_of_messages_that_the_log_lost_meanwhile_is_an_error_at_the_end(lake: Lake, front: Between) -> None:
    frame = far_apart(lake, front)
    front.before_end = lambda: lake.client.clear(QUEUE, "all")

    with pytest.raises(PySparkException, match="of orders have been removed by retention or by clearing"):
        seqs(frame)


def test_what_was_read_before_a_gap_was_lost_comes_once_where_losses_are_accepted(lake: Lake, front: Between) -> None:
    frame = far_apart(lake, front, failOnDataLoss="false")
    front.before_end = lambda: lake.client.clear(QUEUE, "all")

    assert seqs(frame) == [2, 6000, 12000]

    assert front.asked_for(LOG)[PYTHON] == 1


def test_no_plan_shows_the_token(lake: Lake) -> None:
    fill(lake.client, 3)
    frame = lake.read(QUEUE, token="a-secret")

    (scan,) = leaves(frame)

    assert "a-secret" not in str(frame._jdf.queryExecution().toString()) + str(scan.inputPartitions().toString())
