"""The page of refused requests to webhooks."""

from __future__ import annotations

from skep.spec import load, to_json
from tests.dashboard.visitor import Visitor
from tests.http.driver import Api

APP = "app A {\n queue Q {}\n webhook Bell { queue: Q, verify: none, idempotency { key: payload.id } }\n}\n"


def test_refused_requests_are_listed_with_their_reasons(api: Api, visitor: Visitor) -> None:
    assert "No refused requests" in visitor.open("/operations/refusals").text
    assert api.request("PUT", "/api/v1/apps/A", to_json(load(APP, "a.skep")).encode()).status == 200
    api.request("POST", "/hook/Bell", b'{"<script>": "<b>secret</b>"}')

    page = visitor.open("/operations/refusals")

    assert "422 MAPPING_FAILED" in page.text
    assert "the expression payload.id" in page.text
    assert "secret" not in page.html
    assert '<script>"' not in page.html
    assert "Refused webhooks" in visitor.open("/operations").text
    assert "Bell" in visitor.open("/operations/refusals?webhook=Bell").text
    assert "No refused requests" in visitor.open("/operations/refusals?webhook=Nobody").text
