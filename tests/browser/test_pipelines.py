"""Runs of pipelines."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.http.driver import Api

REPORT = {
    "name": "archive", "status": "warn", "rowsIn": 120_000, "rowsOut": 119_950, "rowsRejected": 50, "rowsPerSecond": 8_200.5,
    "lag": {"orders": 12, "payments": 0},
    "stages": [
        {"name": "read", "status": "ok", "rowsIn": 120_000, "rowsOut": 120_000, "rowsPerSecond": 9_000, "seconds": 13.3},
        {"name": "write", "status": "warn", "rowsIn": 120_000, "rowsOut": 119_950, "rowsRejected": 50, "seconds": 4.1,
         "message": "50 rows do not fit the schema"},
    ],
    "checks": [
        {"name": "no gaps in seq", "status": "ok"},
        {"name": "amount is positive", "status": "failed", "rows": 50, "message": "50 rows are negative"},
    ],
    "links": {"report": "https://example.com/report", "evil": "javascript:alert(1)"},
    "message": "finished with rejected rows",
}  # fmt: skip


def test_runs_are_listed_and_shown(screen: Screen, api: Api) -> None:
    for number, status in enumerate(("ok", "failed", "running")):
        report = {**REPORT, "status": status, "name": "metrics", "checks": [], "rowsRejected": 0, "message": None}
        api.request("PUT", f"/api/v1/pipelines/metrics-{number}", json.dumps(report).encode())
    api.request("PUT", "/api/v1/pipelines/archive-1", json.dumps(REPORT).encode())
    screen.open("/pipelines")
    screen.shoot("pipelines")

    screen.page.get_by_role("link", name="archive").last.click()

    main = screen.page.locator("main")
    expect(main).to_contain_text("amount is positive")
    expect(main).to_contain_text("50 rows do not fit the schema")
    assert screen.page.locator('a[href^="javascript"]').count() == 0
    screen.shoot("pipeline")


def test_without_runs_it_says_where_they_come_from(screen: Screen) -> None:
    screen.open("/pipelines")

    expect(screen.page.get_by_role("heading", name="No runs yet")).to_be_visible()
