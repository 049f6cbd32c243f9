"""Logging in to the dashboard: a cookie that only this server's own pages can do something with."""

from __future__ import annotations

from http.cookies import SimpleCookie
from urllib.parse import urlencode

import pytest

from skep.http.auditing import is_audited
from skep.model.key import Verb
from tests.access.driver import Caller, Door
from tests.access.requests import ALL
from tests.http.driver import Reply

OWN = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/x-www-form-urlencoded"}


def login(caller: Caller, key: str, **headers: str) -> Reply:
    return caller.request("POST", "/login", urlencode({"key": key}).encode(), {**OWN, **headers})


@pytest.fixture
def stranger(door: Door) -> Caller:
    return door.with_token(None, door.tenant)


def test_a_page_asks_a_stranger_for_a_key(door: Door, stranger: Caller) -> None:
    asked = stranger.get("/queues")
    assert (asked.status, b'type="password"' in asked.body) == (401, True)

    entered = login(stranger, door.key(*ALL).text)

    assert entered.status == 303
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Secure" not in cookie
    value = cookie.partition(";")[0]
    page = stranger.request("GET", "/queues", headers={"Cookie": f"other=1; {value}"})
    assert page.status == 200
    assert value.partition("=")[2].encode() not in page.body


TLS = [{"X-Forwarded-Proto": "https"}, {"Origin": "https://127.0.0.1:6632", "Host": "127.0.0.1:6632"}]


@pytest.mark.parametrize("headers", TLS, ids=["said by the proxy", "said by the browser"])
def test_behind_tls_the_cookie_is_for_this_host_and_tls_only(
    door: Door, stranger: Caller, headers: dict[str, str]
) -> None:
    entered = login(stranger, door.key(*ALL).text, **headers)
    cookie = entered.headers["set-cookie"]
    name, _, value = cookie.partition(";")[0].partition("=")
    assert name == "__Host-skep_session"
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
    assert stranger.request("GET", "/queues", None, {**headers, "Cookie": f"{name}={value}"}).status == 200


def test_over_tls_a_cookie_that_anyone_could_have_set_counts_for_nothing(door: Door, stranger: Caller) -> None:
    cookie = door.session(door.key(*ALL).text)
    assert cookie.startswith("skep_session=")
    assert stranger.request("GET", "/queues", None, {"Cookie": cookie}).status == 200
    assert stranger.request("GET", "/queues", None, {"Cookie": cookie, "X-Forwarded-Proto": "https"}).status == 401


def test_under_a_path_of_its_own_the_cookie_goes_to_no_other_path(door: Door, stranger: Caller) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Prefix": "/ops/skep"}
    cookie = login(stranger, door.key(*ALL).text, **headers).headers["set-cookie"]
    assert cookie.startswith("__Secure-skep_session=")
    assert "; Path=/ops/skep/; HttpOnly; SameSite=Strict; Secure" in cookie


@pytest.mark.parametrize("prefix", [{}, {"X-Forwarded-Prefix": "/ops/skep"}], ids=["at the root", "under a path"])
def test_over_tls_only_the_cookie_name_that_a_login_sets_there_counts(
    door: Door, stranger: Caller, prefix: dict[str, str]
) -> None:
    """Any neighbour under the same domain can set `__Secure-` cookies, so at the root they count for nothing."""
    headers = {"X-Forwarded-Proto": "https", **prefix}
    own, theirs = door.key(*ALL), door.key(*ALL)
    right, wrong = ("__Secure-", "__Host-") if prefix else ("__Host-", "__Secure-")

    def page(*cookies: str) -> Reply:
        return stranger.request("GET", "/queues", None, {**headers, "Cookie": "; ".join(cookies)})

    cookie = door.session(own.text, **headers)
    planted = door.session(theirs.text, **headers).replace(right, wrong)

    assert cookie.startswith(right)
    assert page(planted).status == 401
    beside = page(planted, cookie)
    assert (beside.status, own.record.id.encode() in beside.body) == (200, True)
    assert stranger.request("GET", "/docs", None, {**headers, "Cookie": cookie}).status == 200


def test_where_the_proxy_is_silent_about_tls_the_guarded_cookie_counts_before_the_plain_one(
    door: Door, stranger: Caller
) -> None:
    cookie = door.session(door.key(*ALL).text, Origin="https://skep.example", Host="skep.example")
    planted = door.session(door.key(*ALL).text)
    host, secure = cookie, cookie.replace("__Host-", "__Secure-")

    assert stranger.request("GET", "/queues", None, {"Cookie": f"{planted}; {host}"}).status == 200
    stranger.request("POST", "/logout", b"", {**OWN, "Cookie": planted})
    assert stranger.request("GET", "/queues", None, {"Cookie": f"{planted}; {host}"}).status == 200
    assert stranger.request("GET", "/queues", None, {"Cookie": secure}).status == 401


@pytest.mark.parametrize(
    "goal", ["//evil.example", "/\\evil.example", "https://evil.example", "/\r\nSet-Cookie: a=b", ""]
)
def test_a_login_leads_to_no_other_place(door: Door, stranger: Caller, goal: str) -> None:
    body = urlencode({"key": door.key(*ALL).text, "next": goal}).encode()
    entered = stranger.request("POST", "/login", body, OWN)
    assert entered.headers["location"].startswith("/")
    assert "evil" not in entered.headers["location"]


def test_logging_out_takes_the_cookie_away(door: Door, stranger: Caller) -> None:
    left = stranger.request("POST", "/logout", b"", {**OWN, "Cookie": door.session(door.key(*ALL).text)})
    assert SimpleCookie(left.headers["set-cookie"])["skep_session"]["max-age"] == "0"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
    ],
)
def test_no_other_page_can_use_the_cookie_to_change_anything(
    door: Door, stranger: Caller, headers: dict[str, str]
) -> None:
    door.caller(*ALL).push("orders", 1)
    shown = {"Cookie": door.session(door.key(*ALL).text), **headers}
    form = {**shown, "Content-Type": "application/x-www-form-urlencoded"}

    assert stranger.request("POST", "/queues/orders/pause", b"paused=yes", form).status == 403
    assert stranger.request("POST", "/login", b"key=x", form).status == 403
    assert door.caller(Verb.POP).pop("orders").status == 200


@pytest.mark.parametrize("headers", [{}, {"Sec-Fetch-Site": "same-origin"}])
def test_the_api_does_not_look_at_cookies(door: Door, stranger: Caller, headers: dict[str, str]) -> None:
    door.caller(*ALL).push("orders", 1)
    shown = {"Cookie": door.session(door.key(*ALL).text), **headers}
    item = b'{"items":[{"queue":"orders","payload":1}]}'

    assert stranger.request("POST", "/api/v1/push", item, shown).status == 401
    assert stranger.request("GET", "/api/v1/pop/queue/orders?autoAck=true", None, shown).status == 401
    assert stranger.request("GET", "/api/v1/resources/queues", None, shown).status == 401


def test_a_cookie_that_is_given_twice_counts_for_nothing(door: Door, stranger: Caller) -> None:
    one, two = (door.session(door.key(*ALL).text) for _ in range(2))
    assert stranger.request("GET", "/queues", None, {"Cookie": f"{one}; {two}"}).status == 401


def test_a_deed_leaves_an_entry_and_needs_more_than_reading(door: Door, stranger: Caller) -> None:
    admin = door.key(*ALL)
    door.with_token(admin.text).push("orders", 1)
    form = {"Cookie": door.session(admin.text), **OWN}
    reader = {"Cookie": door.session(door.key(Verb.READ).text), **OWN}

    assert stranger.request("POST", "/queues/orders/pause", b"paused=yes", reader).status == 403
    assert stranger.request("POST", "/queues/orders/pause", b"paused=yes", form).status == 303

    [entry] = door.with_token(admin.text).get("/api/v1/audit").json["entries"]
    assert (entry["action"], entry["outcome"]) == ("POST /queues/{queue}/pause", "done")
    assert entry["names"] == ["orders"]


def test_every_form_leaves_an_entry(door: Door) -> None:
    pages = [one for one in door.server.app.every_route if one.tag == "Dashboard" and one.method == "POST"]
    forms = {one.path for one in pages if is_audited(one.method, one.access)}
    assert {one.path for one in pages} - forms == {"/login", "/logout"}
    assert len(forms) >= 10


def test_a_message_published_from_a_page_says_who_did(door: Door, stranger: Caller) -> None:
    admin = door.key(*ALL)
    door.with_token(admin.text).post("/api/v1/configure", {"queue": "orders"})
    form = {"Cookie": door.session(admin.text), **OWN}

    assert stranger.request("POST", "/queues/orders/publish", b"payload=1", form).status == 303

    [message] = door.caller(Verb.POP).pop("orders").json["messages"]
    assert message["headers"]["skep-producer"] == f"key:{admin.record.id}"


def test_the_audit_log_is_a_page_for_admins_of_the_tenant(door: Door) -> None:
    admin, reader = door.caller(*ALL), door.caller(Verb.READ)
    admin.push("orders", 1)
    for _ in range(2):
        admin.post("/api/v1/queues/orders/pause")
    rival = Door(door.server, door.tenant + "-rival")
    rival.caller(*ALL).post("/api/v1/configure", {"queue": "theirs"})
    rival.close()

    page = admin.get("/operations/audit?everywhere=yes")

    assert page.body.count(b"POST /api/v1/queues/{queue}/pause") == 2
    assert b"theirs" not in page.body
    assert (
        b"theirs" in door.caller(*ALL, tenants=["*"], tenant=door.tenant).get("/operations/audit?everywhere=yes").body
    )
    assert (b"/operations/audit" in admin.get("/operations").body, reader.get("/operations/audit").status) == (
        True,
        403,
    )
    assert b"/operations/audit" not in reader.get("/operations").body
