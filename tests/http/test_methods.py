"""Which methods a path takes: what OPTIONS, HEAD and a wrong method are answered, route by route."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from skep.http.request.route import Route
from skep.testing.server import RunningServer, running_server
from tests.http.driver import Api
from tests.http.every import every_route

ROUTES = every_route()
BY_PATH: dict[str, list[Route]] = {}
for one in ROUTES:
    BY_PATH.setdefault(one.path, []).append(one)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Which methods there are does not depend on the store."""
    with running_server() as server:
        yield server


each_path = pytest.mark.parametrize("path", BY_PATH)


def named(path: str) -> str:
    return re.sub(r"{\w+}", "nothing", path)


def documented(path: str) -> set[str]:
    methods = {operation.method for operation in BY_PATH[path]}
    return methods | ({"HEAD"} if any(o.method == "GET" and o.verb != "pop" for o in BY_PATH[path]) else set())


@each_path
def test_options_names_every_method_that_the_path_takes_and_no_other(api: Api, path: str) -> None:
    reply = api.request("OPTIONS", named(path))

    allowed = set(reply.headers["allow"].split(", "))
    assert (reply.status, reply.code) == (405, "METHOD_NOT_ALLOWED")
    assert documented(path) <= allowed
    for method in allowed - documented(path):  # a path that another one with a name in it fits, too
        assert api.request(method, named(path)).status != 405
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} - allowed:
        assert api.request(method, named(path)).status == 405


@pytest.mark.parametrize("path", [path for path in BY_PATH if "HEAD" in documented(path)])
def test_head_is_answered_as_get_is_without_the_body(api: Api, path: str) -> None:
    head, get = (api.request(method, named(path)) for method in ("HEAD", "GET"))

    assert (head.status, head.headers.get("content-type")) == (get.status, get.headers.get("content-type"))
    assert head.body == b""


def test_a_path_that_looks_like_one_with_a_name_tells_the_methods_of_both(api: Api) -> None:
    assert api.request("OPTIONS", "/api/v1/entities/read").headers["allow"] == "GET, HEAD, POST"
    assert api.request("OPTIONS", "/api/v1/entities/Order").headers["allow"] == "GET, HEAD"
