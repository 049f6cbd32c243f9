"""What someone tries who wants more than they have: names, headers, paths, logs, sources of difference."""

from __future__ import annotations

import hmac
import http.client
from pathlib import Path
from urllib.parse import quote

import pytest

from skep.access import keys
from skep.access.scopes import includes, is_within, matches
from skep.clock import Instant
from skep.model.key import Grant, Verb
from tests.access.driver import Door
from tests.access.requests import ALL
from tests.support.process import run_skep
from tests.support.serving import serving


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("orders", ["orders"], ["order", "orders2", "Orders", "orders\u200b", "", "*"]),
        ("*", ["", "a", "a/b", "\n", "*"], []),
        ("a*", ["a", "ab", "a*"], ["b", "", "A", "ba"]),
        ("*a", ["a", "ba"], ["ab", "", "A"]),
        ("a*a", ["aa", "aba"], ["a", "ab"]),
        ("a*b*c", ["abc", "axbxc", "abbcc"], ["acb", "ab", "bc", "abcx"]),
        ("*ab*ab*", ["abab", "xababx"], ["ab", "abba", "aab"]),
        ("a.c", ["a.c"], ["abc"]),
        ("[ab]?", ["[ab]?"], ["a", "ab"]),
    ],
)
def test_a_pattern_means_its_stars_and_nothing_else(pattern: str, names: list[str], others: list[str]) -> None:
    assert [name for name in names if not matches(pattern, name)] == []
    assert [name for name in others if matches(pattern, name)] == []


@pytest.mark.parametrize(
    ("outer", "inner", "is_included"),
    [
        ("*", "*", True), ("a*", "*", False), ("a*", "ab*", True), ("ab*", "a*", False), ("a*c", "abc", True),
        ("a*c", "a*bc", True), ("a*c", "a*", False), ("*a*", "*a", True), ("a", "a*", False), ("a*", "a", True),
        ("a**", "a*", True), ("a*b", "a*c*b", True), ("a*b*", "a*", False),
    ],
)  # fmt: skip
def test_a_pattern_includes_another_when_all_of_its_names_are_its_own(
    outer: str, inner: str, is_included: bool
) -> None:
    assert includes(outer, inner) is is_included


def test_a_grant_is_within_others_only_as_a_whole() -> None:
    own = [Grant((Verb.PUSH,), ("a",), ("x*",)), Grant((Verb.READ,), ("*",), ("*",))]
    assert is_within(Grant((Verb.PUSH, Verb.READ), ("a",), ("xy", "x*z")), own)
    assert not is_within(Grant((Verb.PUSH,), ("a", "b"), ("x",)), own)
    assert not is_within(Grant((Verb.PUSH,), ("a",), ("*",)), own)
    assert not is_within(Grant((Verb.POP,), ("a",), ("x",)), own)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/pop/queue/mine%2F..%2Forders", "/api/v1/pop/queue/mine/../orders", "/api/v1/pop/queue/%6Frders",
        "/api/v1/pop/queue/orders%00", "/api/v1/pop/queue/mine%00orders", "/api/v1/pop/queue/ORDERS", "/api/v1/pop/queue/orders%20",
        "//api/v1/pop/queue/orders", "/api/v1/pop/queue//orders", "/api/v1/pop/queue%2Forders", "/api/v1/%70op/queue/orders",
        "/api/v1/pop/queue/mine;/../orders", "/api/v1/pop/queue/orders/partition/x", "/api/v1/pop/queue/mine%2Fpartition%2Fx",
        "/API/v1/pop/queue/orders", "/api/v1/pop/queue/orders/", "/api/v1/pop/queue/mine?queue=orders",
        "/api/v1/log/mine%2F..%2Forders", "/api/v1/resources/queues/%6frders/messages/1", "/api/v1/messages?queue=mine&queue=orders",
        "/api/v1/messages?queue=%6Frders", "/api/v1/dlq?queue=mine&sourceQueue=orders", "/api/v1/dlq?queue=orders&sourceQueue=mine",
        "/api/v1/dlq/orders/1", "/admin/queues/orders/dlq", "/admin/queues/orders/dlq?tenant_id={tenant}",
        "/queues/orders", "/queues/%6Frders", "/queues/mine%2F..%2Forders", "/queues/mine/../orders", "/queues/orders?tenant={tenant}",
        "/messages?q=queue:orders", "/messages?q=queue:mine+queue:orders", "/messages?q=queue:orders+queue:mine&seq=1",
        "/messages?q=queue:%22orders%22&seq=1", "/dead-letters?queue=orders", "/dead-letters/orders/letters/1", "/traces?id=t1",
    ],
)  # fmt: skip
def test_no_spelling_of_a_path_leads_to_another_queue(door: Door, path: str) -> None:
    door.caller(*ALL).push("orders", "SECRET", transactionId="t1")
    door.caller(*ALL).push("mine", "own")
    reply = door.caller(*ALL, queues=["mine", "mine*"]).get(path.replace("{tenant}", door.tenant))
    assert reply.status != 500, reply
    assert b"SECRET" not in reply.body


def test_no_way_of_naming_a_tenant_leads_to_another(door: Door) -> None:
    victim = Door(door.server, door.tenant + "-victim")
    victim.caller(*ALL).push("orders", "SECRET")
    own = door.caller(*ALL)
    for headers in (
        {"Skep-Tenant": victim.tenant}, {"skep-tenant": victim.tenant}, {"SKEP-TENANT": victim.tenant},
        {"Skep-Tenant": f"{door.tenant},{victim.tenant}"}, {"Skep-Tenant": f"{victim.tenant} "}, {"Skep-Tenant": ""},
        {"X-Skep-Tenant": victim.tenant}, {"Skep_Tenant": victim.tenant},
    ):  # fmt: skip
        reply = own.request("GET", "/api/v1/pop/queue/orders", headers=headers)
        assert b"SECRET" not in reply.body, headers
    for path in (
        f"/admin/queues?tenant_id={victim.tenant}",
        f"/?tenant={victim.tenant}",
        f"/queues?tenant={victim.tenant}",
    ):
        assert own.get(path).status == 403, path
    assert victim.tenant not in own.get("/api/v1/resources/tenants").body.decode()
    assert own.get(f"/admin/queues?tenant_id={door.tenant}").status == 200
    victim.close()


def raw(door: Door, *headers: tuple[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", door.server.port, timeout=30)
    connection.putrequest("GET", "/api/v1/resources/queues")
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_headers_given_twice_or_oddly_count_for_nothing(door: Door) -> None:
    key, other = door.key(*ALL).text, door.key(*ALL).text
    good = ("Authorization", f"Bearer {key}")
    assert raw(door, good) == 200
    assert raw(door, ("Authorization", f"bearer   {key}  ")) == 200
    assert raw(door, good, ("Authorization", f"Bearer {other}")) == 401
    assert raw(door, ("Authorization", f"Basic {key}"), ("Cookie", door.session(key))) == 401
    assert raw(door, ("Authorization", key)) == 401
    assert raw(door, ("Authorization", f"Bearer {key},{other}")) == 401
    assert raw(door, ("X-Authorization", f"Bearer {key}")) == 401
    assert raw(door, good, ("Skep-Tenant", door.tenant), ("Skep-Tenant", door.tenant)) == 422


def test_a_refusal_does_not_tell_what_is_there(door: Door) -> None:
    door.caller(*ALL).push("orders", 1)
    narrow = door.caller(*ALL, queues=["mine"])
    for path in (
        "/api/v1/resources/queues/{}",
        "/api/v1/log/{}",
        "/api/v1/dlq?queue={}",
        "/admin/queues/{}/dlq",
        "/api/v1/status/queues/{}",
    ):
        there, missing = (narrow.get(path.format(name)) for name in ("orders", "nothere"))
        assert there.status == missing.status == 403
        assert there.body.replace(b"orders", b"") == missing.body.replace(b"nothere", b"")


def test_a_queue_cannot_be_made_to_bury_in_another(door: Door) -> None:
    narrow = door.caller(*ALL, queues=["mine"])
    wish = {"queue": "mine", "settings": {"dead_letter_queue": "orders"}}
    assert narrow.post("/api/v1/configure", wish).status == 403
    assert narrow.post("/api/v1/configure", {"queue": "mine", "settings": {"dead_letter_queue": "none"}}).status == 200


def test_a_shared_dead_letter_queue_shows_only_what_came_from_the_own_queue(door: Door) -> None:
    admin = door.caller(*ALL)
    for name in ("mine", "orders"):
        admin.post("/api/v1/configure", {"queue": name, "settings": {"dead_letter_queue": "graves"}})
        admin.push(name, f"of {name}")
        [message] = admin.pop(name).json["messages"]
        admin.post("/api/v1/ack", {"leaseId": message["leaseId"], "seq": message["seq"], "status": "dlq"})
    narrow = door.caller(*ALL, queues=["mine"])

    seen = narrow.get("/api/v1/dlq?queue=mine").json
    assert [letter["payload"] for letter in seen["deadLetters" if "deadLetters" in seen else next(iter(seen))]] == [
        "of mine"
    ]
    for query in ("queue=graves", "queue=mine&sourceQueue=orders", "queue=graves&sourceQueue=orders"):
        assert narrow.get(f"/api/v1/dlq?{query}").status == 403
    assert narrow.get("/api/v1/dlq?queue=graves&sourceQueue=mine").status == 200
    for body in ({"queue": "graves"}, {"queue": "mine", "sourceQueue": "orders"}):
        assert narrow.post("/api/v1/dlq/purge", body).status == 403
        assert narrow.post("/api/v1/dlq/replay", body).status == 403
    assert narrow.post("/api/v1/dlq/purge", {"queue": "mine"}).status == 200
    assert [letter["payload"] for letter in next(iter(admin.get("/api/v1/dlq?queue=graves").json.values()))] == [
        "of orders"
    ]


def test_a_pop_over_a_namespace_takes_only_from_what_may_be_popped(door: Door) -> None:
    admin = door.caller(*ALL)
    for name in ("mine", "orders"):
        admin.post("/api/v1/configure", {"queue": name, "settings": {"namespace": "n"}})
        admin.push(name, f"of {name}")
    narrow = door.caller(Verb.POP, queues=["mine"])

    popped = narrow.get("/api/v1/pop?namespace=n&batch=10").json["messages"]
    assert [message["payload"] for message in popped] == ["of mine"]
    assert narrow.get("/api/v1/pop?namespace=n&batch=10").status == 204


def test_effects_need_the_whole_tenant(door: Door) -> None:
    effect = {"entity": "Order", "id": "1", "version": 0, "events": [{"name": "made", "data": {}}], "state": {}}
    body = {"acknowledgments": [], "items": [], "effects": [effect]}
    assert door.caller(*ALL, queues=["orders*"]).post("/api/v1/transaction", body).status == 403
    assert door.caller(Verb.POP, Verb.READ).post("/api/v1/transaction", body).status == 403
    assert door.caller(Verb.PUSH).post("/api/v1/transaction", body).status == 200


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the key is there or not, and wherever the secret differs: one digest and one comparison of whole digests."""
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def comparing(one: bytes, two: bytes) -> bool:
        compared.append((len(one), len(two)))
        return real(one, two)

    monkeypatch.setattr(hmac, "compare_digest", comparing)
    presented = keys.Presented("0" * 16, "0" * 43)
    minted = keys.mint("k", [Grant((Verb.PUSH,))], created_by="x", now=Instant(1))
    assert not keys.is_right(presented, None)
    assert not keys.is_right(presented, minted.record)
    right = keys.parse(minted.text)
    assert right is not None
    assert keys.is_right(right, minted.record)
    assert compared == [(32, 32)] * 3


def test_only_a_digest_of_a_key_is_stored(tmp_path: Path) -> None:
    key = made(tmp_path, "--role", "admin")
    secret = key.rpartition("_")[2].encode()
    stored = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert secret not in stored


def made(folder: Path, *arguments: str) -> str:
    run = run_skep("key", "create", "-q", *arguments, cwd=folder, text=True, timeout=120)
    run.check_returncode()
    return str(run.stdout).strip()


def test_a_key_made_on_the_store_guards_the_server_and_is_never_logged(tmp_path: Path) -> None:
    key = made(tmp_path, "--role", "read-write", "--queues", "orders*")
    with serving("--log-level", "debug", folder=tmp_path) as server:
        port = server.listening()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        statuses = []
        for token in (key, key[:-1] + "!", None):
            for path in ("/api/v1/pop/queue/orders", f"/api/v1/pop/queue/{quote('invoices')}"):
                shown = {"Authorization": f"Bearer {token}", "Cookie": f"skep_session={token}"}
                headers = {} if token is None else shown
                connection.request("GET", path, headers=headers)
                response = connection.getresponse()
                response.read()
                statuses.append(response.status)
        form = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
        session = ""
        for method, path, body, headers in (
            ("POST", "/login", f"key={key}", form),
            ("GET", "/queues", None, {}),
            ("POST", "/queues/orders/pause", f"key={key}", form),
            ("GET", f"/queues?key={key}", None, {}),
        ):
            connection.request(method, path, body, {**headers, "Cookie": session})
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
            session = (response.headers["set-cookie"] or session).partition(";")[0]
        connection.close()
        server.signal()
        server.ended()
        said = "\n".join(server.lines)
    assert statuses == [404, 403, 401, 401, 401, 401, 303, 200, 403, 422]
    assert "/api/v1/pop/queue/orders" in said
    assert key.rpartition("_")[2][:-1] not in said
    assert session.partition("=")[2] not in said


def test_the_first_key_is_not_given_away_to_somebody_who_cannot_read_the_servers_files(tmp_path: Path) -> None:
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    theirs.mkdir()
    mine.mkdir()
    with serving("--set", "access.required=true", folder=theirs) as server:
        url = f"http://127.0.0.1:{server.listening()}"
        run = run_skep("key", "create", "-q", "--role", "admin", "--url", url, cwd=mine, text=True, timeout=120)
        assert (run.returncode, run.stdout) == (3, "")
        assert "does not prove that it holds the store" in run.stderr
