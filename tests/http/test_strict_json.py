"""JSON that readers could disagree about does not enter."""

from __future__ import annotations

import pytest

from skep.config import HttpLimits
from skep.testing.server import running_server
from tests.http.driver import Api, Reply


def push(api: Api, payload: str) -> Reply:
    return api.request("POST", "/api/v1/push", f'{{"items":[{{"queue":"q","payload":{payload}}}]}}'.encode())


@pytest.mark.parametrize(
    "body",
    [
        '{"items":[{"queue":"q","payload":{"a":1,"a":2}}]}',
        '{"items":[{"queue":"q","payload":[[{"a" : 1, "b": {}, "\\u0061" : 2}]]}]}',
        '{"items":[{"queue":"q","queue":"r","payload":1}]}',
        '{"items":[],"items":[{"queue":"q","payload":1}]}',
        '{"items":[{"queue":"q","payload":1,"headers":{"a":"1","a":"2"}}]}',
    ],
)
def test_a_key_given_twice_is_malformed_wherever_it_is(api: Api, body: str) -> None:
    reply = api.request("POST", "/api/v1/push", body.encode())

    assert (reply.status, reply.code) == (400, "MALFORMED")
    assert "twice" in reply.json["error"]["message"]
    assert api.get("/api/v1/resources/queues").json["queues"] == []


def test_a_key_given_twice_is_malformed_on_other_routes_too(api: Api) -> None:
    reply = api.request("POST", "/api/v1/configure", b'{"queue":"q","settings":{"paused":true,"paused":false}}')

    assert (reply.status, reply.code) == (400, "MALFORMED")


@pytest.mark.parametrize("payload", ["NaN", "Infinity", "-Infinity", '"\x01"', "01", '{"a":1,}', "'a'", '"\\ud800"'])
def test_what_only_some_call_json_is_malformed(api: Api, payload: str) -> None:
    reply = push(api, payload)

    assert (reply.status, reply.code) == (400, "MALFORMED")


def test_numbers_beyond_ours_are_for_the_reader_to_judge(api: Api) -> None:
    assert push(api, '{"a":1e999,"b":' + "9" * 5000 + "}").status == 201


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_payloads_are_nested_so_deep_and_no_deeper(api: Api, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    limit = HttpLimits().json_depth

    assert push(api, opening * limit + "1" + closing * limit).status == 201
    reply = push(api, opening * (limit + 1) + "1" + closing * (limit + 1))
    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_a_wide_batch_is_not_taken_for_a_deep_one(api: Api) -> None:
    assert api.push("q", *([{"a": [{}]}] * 500)).status == 201


@pytest.mark.parametrize("levels", [600, 100_000])
def test_very_deep_bodies_are_refused_and_harm_nobody(api: Api, levels: int) -> None:
    deep = "[" * levels + "]" * levels
    transaction = f'{{"items":[{{"queue":"q","payload":{deep}}}]}}'.encode()
    configure = f'{{"queue":"q","settings":{{"paused":{deep}}}}}'.encode()

    assert push(api, deep).status == 422
    assert api.request("POST", "/api/v1/transaction", transaction).status == 422
    assert api.request("POST", "/api/v1/configure", configure).status == 422
    assert push(api, "1").status == 201


def test_the_depth_is_set_by_who_runs_the_server() -> None:
    with running_server(limits=HttpLimits(json_depth=8)) as server:
        api = Api(server, "default")
        assert push(api, "[" * 8 + "]" * 8).status == 201
        assert push(api, "[" * 9 + "]" * 9).status == 422
        api.close()
