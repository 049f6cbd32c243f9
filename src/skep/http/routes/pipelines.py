"""`/api/v1/pipelines…`: runs of pipelines tell of themselves here, for whoever looks at the dashboard."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import LIMIT, page_limit
from skep.http.request.permission import PUSH_TENANT, READ_TENANT
from skep.http.request.route import Parameter, Route
from skep.model.record import PipelineRun
from skep.wire.pipelines import RunReport, RunsResponse, RunView
from skep.wire.times import to_datetime

TAG = "Pipelines"
RUN = Parameter("run", str, "the id of the run")

_decode = msgspec.json.Decoder(RunReport)
_encode = msgspec.json.Encoder().encode


def routes(engine: Engine) -> list[Route]:
    """Runs of pipelines."""

    async def put(call: Call) -> Answer:
        report = await call.json(_decode)
        return json_answer(_view(await engine.records.put_run(call.path("run"), _encode(report), call.tenant)))

    async def show(call: Call) -> Answer:
        return json_answer(_view(await engine.records.run(call.path("run"), call.tenant)))

    async def list_runs(call: Call) -> Answer:
        found = await engine.records.runs(call.tenant, limit=page_limit(call.query))
        return json_answer(RunsResponse([_view(run) for run in found]))

    return [
        Route(
            method="GET", path="/api/v1/pipelines", access=READ_TENANT, handler=list_runs, tag=TAG, parameters=(LIMIT,),
            answers={200: RunsResponse}, summary="List runs of pipelines, newest first",
        ),
        Route(
            method="GET", path="/api/v1/pipelines/{run}", access=READ_TENANT, handler=show, tag=TAG, parameters=(RUN,),
            answers={200: RunView}, summary="Show a run of a pipeline",
        ),
        Route(
            method="PUT", path="/api/v1/pipelines/{run}", access=PUSH_TENANT, handler=put, tag=TAG, parameters=(RUN,), request=RunReport,
            answers={200: RunView}, summary="Tell how a run of a pipeline stands, in place of what it told before",
            description="The last 1,000 runs of a tenant are kept.",
            example={"name": "archive", "status": "running", "rowsIn": 1000, "rowsOut": 990, "lag": {"orders": 12}},
        ),
    ]  # fmt: skip


def _view(run: PipelineRun) -> RunView:
    return RunView(run.id, to_datetime(run.started_at), to_datetime(run.updated_at), _decode.decode(run.document))
