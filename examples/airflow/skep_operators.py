"""Skep in Airflow 3: an operator that runs pipelines, and a sensor that waits until a group has caught up.

Copy this file into your `dags` folder, beside `skep_nightly.py`, which uses both. They call the command `skep` and read what it prints,
so Skep and Spark may be in an environment of their own, apart from Airflow's.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

SERVER, AUTHENTICATION, NOTHING = 2, 3, 4
"""Exit codes: the server is away, the credentials do not do, and what was named is not there."""


class SkepPipelineOperator(BaseOperator):
    """Runs `skep pipeline run`. Its result is the run in short: its id, status, rows, lag and warnings.

    A run that failed fails the task, and `retries` of the task try again. Without the right credentials, or when a named queue is not
    there, trying again would not help, and the task fails at once.
    """

    template_fields = ("pipelines", "lake", "options", "environment")

    def __init__(
        self,
        *,
        pipelines: Sequence[str],
        lake: str,
        options: Sequence[str] = (),
        skep: Sequence[str] = ("skep",),
        environment: Mapping[str, str] | None = None,
        **task: Any,
    ) -> None:
        """``options`` are those of the command, such as `["--group", "archive"]`. ``environment`` has `SKEP_URL` and `SKEP_TOKEN`."""
        super().__init__(**task)
        self.pipelines, self.lake, self.options = pipelines, lake, options
        self.skep, self.environment = skep, environment
        self._process: subprocess.Popen[bytes] | None = None

    def execute(self, context: Any) -> dict[str, Any]:  # noqa: ARG002 - as Airflow calls it
        """Run the pipelines, and read the run as JSON, which is also in `runs/ID/run.json` of the lake."""
        command = [
            *self.skep,
            "pipeline",
            "run",
            *self.pipelines,
            "--lake",
            self.lake,
            "--output",
            "json",
            *self.options,
        ]
        self._process = subprocess.Popen(command, env=variables(self.environment), stdout=subprocess.PIPE)
        printed, _ = self._process.communicate()
        run = json.loads(printed) if printed else {}
        if self._process.returncode:
            raise failure(self._process.returncode, reasons(run))
        return {
            "id": run["id"],
            "status": run["status"],
            "rows_in": sum(stage["rows_in"] for stage in run["stages"]),
            "rows_out": sum(stage["rows_out"] for stage in run["stages"]),
            "lag": run["lag"],
            "warnings": [check["name"] for check in run["checks"] if not check["held"]],
        }

    def on_kill(self) -> None:
        """End the run when the task is ended. The next run does what is left."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()


class SkepLagSensor(BaseSensorOperator):
    """Waits until a group has at most so many messages of a queue before it. While the server is away, it waits too."""

    template_fields = ("queue_name", "group", "environment")

    def __init__(
        self,
        *,
        queue_name: str,
        group: str,
        at_most: int = 0,
        skep: Sequence[str] = ("skep",),
        environment: Mapping[str, str] | None = None,
        **task: Any,
    ) -> None:
        """``queue_name`` is a queue of Skep's; `queue` means one of Airflow's workers."""
        super().__init__(**task)
        self.queue_name, self.group, self.at_most = queue_name, group, at_most
        self.skep, self.environment = skep, environment

    def poke(self, context: Any) -> bool:  # noqa: ARG002 - as Airflow calls it
        """Whether the group has caught up. A group that is not there has not: it begins with its first pop."""
        command = [*self.skep, "lag", "--queue", self.queue_name, "--group", self.group, "--output", "json"]
        asked = subprocess.run(command, env=variables(self.environment), stdout=subprocess.PIPE, check=False)
        if asked.returncode == SERVER:
            return False
        if asked.returncode:
            raise failure(asked.returncode, [])
        groups = json.loads(asked.stdout)
        self.log.info(
            "lag of %s in %s: %s", self.group, self.queue_name, [one["lag"] for one in groups] or "no group yet"
        )
        return bool(groups) and all(one["lag"] <= self.at_most for one in groups)


def variables(more: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of the command."""
    return {**os.environ, **(more or {})}


def reasons(run: Mapping[str, Any]) -> list[str]:
    """Why a run failed: its error, and the checks that did not hold."""
    error = [run["error"]] if run.get("error") else []
    failed = [check for check in run.get("checks", []) if not check["held"] and check["severity"] == "fail"]
    return error + [f"{check['stage']}: {check['name']} {check['figures']}" for check in failed]


def failure(exit_code: int, why: Sequence[str]) -> AirflowException:
    """The exception after an exit code. What the command said on stderr is in the log of the task."""
    told = f"skep ended with {exit_code}: {'; '.join(why) or 'see the log'}"
    return AirflowFailException(told) if exit_code in (AUTHENTICATION, NOTHING) else AirflowException(told)
