"""Runs of pipelines over the wire."""

from __future__ import annotations

import json

from tests.http.driver import Api, Reply

RUNS = "/api/v1/pipelines"


def put(api: Api, run: str, **report: object) -> Reply:
    body = json.dumps({"name": "archive", "status": "running", **report}).encode()
    return api.request("PUT", f"{RUNS}/{run}", body, {"Content-Type": "application/json"})


def test_a_run_tells_how_it_stands_and_is_listed(api: Api) -> None:
    stage = {"name": "read", "status": "ok", "rowsIn": 5, "rowsOut": 4, "rowsRejected": 1}
    check = {"name": "no nulls", "status": "warn", "rows": 1}
    put(api, "a%2F1", rowsIn=1)
    put(api, "b")
    told = put(api, "a%2F1", status="warn", stages=[stage], checks=[check], lag={"q": 3}, links={"report": "file:/r"})

    assert told.status == 200, told
    report = told.json["report"]
    assert (report["status"], report["stages"][0]["rowsRejected"], report["checks"][0]["rows"]) == ("warn", 1, 1)
    assert [run["id"] for run in api.get(RUNS).json["pipelines"]] == ["b", "a/1"]
    assert api.get(f"{RUNS}/a%2F1").json == told.json


def test_what_is_no_report_is_refused(api: Api) -> None:
    assert put(api, "a", status="great").code == "INVALID_REQUEST"
    assert put(api, "a", color="red").code == "INVALID_REQUEST"
    missing = api.get(f"{RUNS}/none")
    assert (missing.status, missing.code) == (404, "PIPELINE_NOT_FOUND")
