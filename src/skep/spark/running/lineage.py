"""OpenLineage events of a run, one JSON object per line: what was read, what was written, and when.

See https://openlineage.io for the format. Events go to a file, where a collector of lineage can fetch them; nothing is sent anywhere.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID, uuid5

import msgspec

from skep import __version__
from skep.spark.running.record import Dataset, Run, Stage

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets/1-1-1"
PRODUCER = f"pkg:pypi/skep@{__version__}"
"""The producer of the events, as a package URL: the format wants a URI."""
NAMESPACE = "skep"
PARENT = "pipeline"
"""The job of a whole run; the jobs of its pipelines are below it."""
Kind = Literal["START", "COMPLETE", "FAIL"]


def events(run: Run) -> bytes:
    """The start and end events of a run and of its pipelines."""
    found = [_event("START", run.started_at, run.id, PARENT)]
    for stage in run.stages:
        found += _stage_events(run, stage)
    if run.ended_at is not None:
        kind: Kind = "FAIL" if run.status == "failed" else "COMPLETE"
        found.append(_event(kind, run.ended_at, run.id, PARENT, error=run.error if kind == "FAIL" else None))
    return b"".join(msgspec.json.encode(one) + b"\n" for one in found)


def _stage_events(run: Run, stage: Stage) -> list[dict[str, Any]]:
    """The events of a pipeline: a job of its own, with the whole run as its parent."""
    identity, job = str(uuid5(UUID(run.id), stage.name)), f"{PARENT}.{stage.name}"
    parent = _facet("ParentRunFacet", run={"runId": run.id}, job={"namespace": NAMESPACE, "name": PARENT})
    told = [_event("START", stage.began_at or run.started_at, identity, job, parent=parent)]
    if stage.status != "running":
        failed = stage.status == "failed"
        told.append(
            _event(
                "FAIL" if failed else "COMPLETE", stage.ended_at or run.ended_at or run.started_at, identity, job,
                parent=parent, error=(run.error or stage.note or "a check failed") if failed else None,
                inputs=[
                    _dataset(one, "inputFacets", "dataQualityMetrics") for one in run.inputs if one.stage == stage.name
                ],
                outputs=[
                    _dataset(one, "outputFacets", "outputStatistics") for one in run.outputs if one.stage == stage.name
                ],
            )
        )  # fmt: skip
    return told


def _event(
    kind: Kind,
    at: datetime,
    identity: str,
    job: str,
    *,
    parent: dict[str, Any] | None = None,
    error: str | None = None,
    inputs: list[dict[str, Any]] | None = None,
    outputs: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    facets: dict[str, Any] = {} if parent is None else {"parent": parent}
    if error is not None:
        facets["errorMessage"] = _facet("ErrorMessageRunFacet", message=error, programmingLanguage="python")
    of_job = _facet("JobTypeJobFacet", processingType="BATCH", integration="SPARK", jobType="PIPELINE")
    return {
        "eventType": kind, "eventTime": at, "run": {"runId": identity, "facets": facets},
        "job": {"namespace": NAMESPACE, "name": job, "facets": {"jobType": of_job}},
        "inputs": inputs or [], "outputs": outputs or [], "producer": PRODUCER, "schemaURL": SCHEMA,
    }  # fmt: skip


def _dataset(one: Dataset, side: str, statistics: str) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if one.columns:
        fields = [{"name": name, "type": kind} for name, kind in one.columns.items()]
        facets["schema"] = _facet("SchemaDatasetFacet", fields=fields)
    found: dict[str, Any] = {"namespace": one.namespace, "name": one.name, "facets": facets}
    if one.rows is not None:
        found[side] = {statistics: _facet("StatisticsFacet", rowCount=one.rows)}
    return found


def _facet(name: str, **values: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{name}.json#/$defs/{name}", **values}
