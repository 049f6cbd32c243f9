"""A second archive costs what is new, and a little: counted, with few queues and with many that have not changed."""

from __future__ import annotations

import re
import urllib.request
from collections import Counter
from pathlib import Path

from tests.spark.conftest import Lake
from tests.spark.test_many_queues import names, push_to_each
from tests.spark.test_running import ran

FEW, MORE = 3, 30
ANSWERED = re.compile(r'^skep_http_requests_total\{method="(\w+)",route="([^"]+)",.*\} (\S+)$', re.MULTILINE)
BY_TIME = {"/metrics", "/api/v1/pipelines/{run}"}
"""Routes that are asked as often as time passes."""


def answered(lake: Lake) -> Counter[str]:
    """How often the server has answered, by route."""
    with urllib.request.urlopen(f"{lake.url}/metrics") as answer:
        found = ANSWERED.findall(answer.read().decode())
    return Counter({f"{method} {route}": round(float(count)) for method, route, count in found if route not in BY_TIME})


def second_night(lake: Lake) -> Counter[str]:
    """Archive two new messages: what was asked of the server."""
    for queue in names(2):
        lake.client.push(queue, {"new": True})
    asked = answered(lake)

    run = ran(lake, "archive").run

    assert (run.error, run.status, run.stages[0].rows_out) == (None, "ok", 2)
    assert [check.figures for check in run.checks] == ["2 messages of 2 queues were compared"]
    return answered(lake) - asked


def test_a_second_archive_asks_no_more_of_the_server_when_more_queues_have_not_changed(lake: Lake) -> None:
    push_to_each(lake.client, FEW)
    ran(lake, "archive")
    with_few = second_night(lake)
    push_to_each(lake.client, MORE)
    ran(lake, "archive")

    with_more = second_night(lake)

    assert with_more == with_few


def test_a_second_archive_opens_no_file_of_queues_that_have_not_changed_and_an_audit_opens_all(lake: Lake) -> None:
    push_to_each(lake.client, FEW)
    ran(lake, "archive", verify=False)
    messages = lake.folder / "lake" / "messages"
    [unchanged] = Path(messages / f"queue={names(FEW)[-1]}").rglob("*.parquet")
    unchanged.write_bytes(b"no parquet")

    second_night(lake)

    audited = ran(lake, "archive", audit=True).run
    assert audited.status == "failed"
    assert unchanged.name in (audited.error or "")
