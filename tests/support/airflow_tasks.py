"""The tasks of examples/airflow in a Python that has Airflow, called as its workers call them: a line of JSON per task, with what became of it.

Run as `python -m tests.support.airflow_tasks URL LAKE SKEP…`, with the folder of the example on the path.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException
from skep_operators import SkepLagSensor, SkepPipelineOperator

from tests.support.waiting import until

NOBODY = "http://127.0.0.1:9"


def outcome(call: Callable[[Any], Any]) -> str:
    """What a task gives, or how it fails; `for good` means that it is not tried again."""
    try:
        return repr(call({}))
    except AirflowFailException as error:
        return f"for good: {error}"
    except AirflowException as error:
        return f"failed: {error}"


def main(url: str, lake: str, skep: list[str]) -> None:
    def pipelines(name: str, *options: str, at: str = url, into: str = lake) -> SkepPipelineOperator:
        return SkepPipelineOperator(
            task_id=name, pipelines=["archive"], lake=into, options=options, skep=skep, environment={"SKEP_URL": at}
        )

    def sensor(name: str, queue: str, at: str = url, at_most: int = 0) -> SkepLagSensor:
        return SkepLagSensor(
            task_id=name, queue_name=queue, group="billing", at_most=at_most, skep=skep, environment={"SKEP_URL": at}
        )

    ended = pipelines("ended", into=f"{lake}-ended")
    runs = Path(f"{lake}-ended") / "runs"
    ending = threading.Thread(target=lambda: (until(runs.is_dir), ended.on_kill()))
    tasks: dict[str, Callable[[Any], Any]] = {
        "behind": sensor("behind", "orders").poke,
        "close": sensor("close", "orders", at_most=2).poke,
        "done": sensor("done", "refunds").poke,
        "no group": sensor("no_group", "customers").poke,
        "no queue": sensor("no_queue", "absent").poke,
        "no server to ask": sensor("no_server", "orders", at=NOBODY).poke,
        "no server": pipelines("away", at=NOBODY).execute,
        "no such option": pipelines("option", "--fromat", "delta").execute,
        "not there": pipelines("absent", "--queue", "absent").execute,
        "ended": ended.execute,
    }
    ending.start()
    for name, call in tasks.items():
        sys.stdout.write(json.dumps([name, outcome(call)]) + "\n")
    ending.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
