"""Every night: wait until the group `billing` has done all its orders, then bring the messages into the lake.

The variables SKEP_URL and SKEP_TOKEN of Airflow's workers name the server. SKEP_COMMAND is the command, if `skep` is not on their PATH.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG
from skep_operators import SkepLagSensor, SkepPipelineOperator

SKEP = os.environ.get("SKEP_COMMAND", "skep").split()
LAKE = os.environ.get("SKEP_LAKE", "/srv/lake")

with DAG(
    "skep_nightly",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow takes it as UTC
    catchup=False,
    max_active_runs=1,  # a lake takes one run at a time
) as dag:
    caught_up = SkepLagSensor(
        task_id="caught_up",
        queue_name="orders",
        group="billing",
        skep=SKEP,
        mode="reschedule",
        poke_interval=300,
        timeout=3 * 3600,
    )
    pipelines = SkepPipelineOperator(
        task_id="pipelines",
        pipelines=["archive", "history", "metrics", "journeys", "dead-letters"],
        lake=LAKE,
        options=["--group", "archive"],
        skep=SKEP,
        retries=3,
        retry_delay=timedelta(minutes=5),
    )
    caught_up >> pipelines
