"""OpenLineage events of a run, one JSON object per line: what was read, what was written, and when.

See https://openlineage.io for the form. Events go to a file, which whoever collects lineage can pick up; nothing is sent anywhere.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from skep.spark.running.record import Dataset, Run

SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS = "https://openlineage.io/spec/facets/1-1-1"
PRODUCER = "https://skep.invalid/pipeline"
NAMESPACE = "skep"
Kind = Literal["START", "COMPLETE", "FAIL"]


def events(run: Run) -> bytes:
    """The events of a run that ended, or of one that has begun."""
    kinds: list[Kind] = ["START"]
    if run.ended_at is not None:
        kinds.append("FAIL" if run.status == "failed" else "COMPLETE")
    return b"".join(msgspec.json.encode(event(run, kind)) + b"\n" for kind in kinds)


def event(run: Run, kind: Kind) -> dict[str, Any]:
    """One event."""
    at = run.started_at if kind == "START" or run.ended_at is None else run.ended_at
    facets: dict[str, Any] = {}
    if run.error is not None and kind == "FAIL":
        facets["errorMessage"] = _facet("ErrorMessageRunFacet", message=run.error, programmingLanguage="python")
    return {
        "eventType": kind,
        "eventTime": at,
        "run": {"runId": run.id, "facets": facets},
        "job": {
            "namespace": NAMESPACE,
            "name": f"pipeline.{run.name.replace(' ', '+')}",
            "facets": {
                "jobType": _facet("JobTypeJobFacet", processingType="BATCH", integration="SPARK", jobType="PIPELINE")
            },
        },
        "inputs": []
        if kind == "START"
        else [_dataset(one, "inputFacets", "dataQualityMetrics", "rowCount") for one in run.inputs],
        "outputs": []
        if kind == "START"
        else [_dataset(one, "outputFacets", "outputStatistics", "rowCount") for one in run.outputs],
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
    }


def _dataset(one: Dataset, side: str, statistics: str, count: str) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if one.columns:
        fields = [{"name": name, "type": kind} for name, kind in one.columns.items()]
        facets["schema"] = _facet("SchemaDatasetFacet", fields=fields)
    found: dict[str, Any] = {"namespace": one.namespace, "name": one.name, "facets": facets}
    if one.rows is not None:
        found[side] = {statistics: _facet("StatisticsFacet", **{count: one.rows})}
    return found


def _facet(name: str, **values: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{name}.json#/$defs/{name}", **values}
