"""`/api/v1/pipelines…`: runs of pipelines report here, and the dashboard shows the reports."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import LIMIT, page_limit
from skep.http.request.permission import PUSH_TENANT, READ_TENANT
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable
from skep.model.record import PipelineRun
from skep.wire.pipelines import RunReport, RunsResponse, RunView
from skep.wire.times import to_datetime

RUN = Parameter("run", str, "the id of the run")

_decode = msgspec.json.Decoder(RunReport)
_encode = msgspec.json.Encoder().encode


ROUTES: RouteTable[Engine] = RouteTable("Pipelines")


@ROUTES.route(
    "GET", "/api/v1/pipelines", READ_TENANT, "List runs of pipelines, newest first", parameters=(LIMIT,),
    answers={200: RunsResponse},
)  # fmt: skip
async def list_runs(engine: Engine, call: Call) -> Answer:
    found = await engine.records.runs(call.tenant, limit=page_limit(call.query))
    return json_answer(RunsResponse([_view(run) for run in found]))


@ROUTES.route(
    "GET", "/api/v1/pipelines/{run}", READ_TENANT, "Show a run of a pipeline", parameters=(RUN,),
    answers={200: RunView},
)  # fmt: skip
async def show(engine: Engine, call: Call) -> Answer:
    return json_answer(_view(await engine.records.run(call.path("run"), call.tenant)))


@ROUTES.route(
    "PUT", "/api/v1/pipelines/{run}", PUSH_TENANT,
    "Report the state of a pipeline run, in place of its earlier report", parameters=(RUN,), request=RunReport,
    answers={200: RunView}, description="The last 1,000 runs of a tenant are kept.",
    example={"name": "archive", "status": "running", "rowsIn": 1000, "rowsOut": 990, "lag": {"orders": 12}},
)  # fmt: skip
async def put(engine: Engine, call: Call) -> Answer:
    report = await call.json(_decode)
    return json_answer(_view(await engine.records.put_run(call.path("run"), _encode(report), call.tenant)))


def _view(run: PipelineRun) -> RunView:
    return RunView(run.id, to_datetime(run.started_at), to_datetime(run.updated_at), _decode.decode(run.document))
