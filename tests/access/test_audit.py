"""The audit log says what was done to what, how much of it, what was there before and after, and how it went."""

from __future__ import annotations

from typing import Any

import pytest

from skep.http.auditing import is_audited, told, verb_of
from skep.model.key import AuditEntry, AuditOutcome, Verb
from tests.access.driver import Caller, Door
from tests.access.requests import ALL

OWN = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def admin(door: Door) -> Caller:
    return door.caller(*ALL)


def entries(admin: Caller) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = admin.get("/api/v1/audit").json["entries"]
    return found


def newest(admin: Caller) -> tuple[Any, ...]:
    """Verb, target, count, before, after and outcome of the last thing that was done."""
    one = entries(admin)[0]
    return tuple(one[name] for name in ("verb", "target", "count", "before", "after", "outcome"))


def form(door: Door, admin: Caller, path: str, body: bytes) -> int:
    assert admin.token is not None
    caller = door.with_token(None, door.tenant)
    return caller.request("POST", path, body, {"Cookie": door.session(admin.token), **OWN}).status


def with_dead_letter(admin: Caller) -> None:
    admin.push("orders", 1, 2, 3)
    [message] = admin.pop("orders").json["messages"][:1]
    admin.post("/api/v1/ack", {"leaseId": message["leaseId"], "seq": message["seq"], "status": "dlq", "error": "bad"})


def test_a_dry_run_is_not_called_done(admin: Caller) -> None:
    with_dead_letter(admin)
    for method, path, body in (
        ("POST", "/api/v1/queues/orders/clear", {"dryRun": True}),
        ("DELETE", "/api/v1/resources/queues/orders?dryRun=true", None),
        ("POST", "/api/v1/dlq/replay", {"queue": "orders", "dryRun": True}),
        ("POST", "/api/v1/dlq/purge", {"queue": "orders", "dryRun": True}),
        ("POST", "/api/v1/consumer-groups/g/seek", {"queue": "orders", "to": "end", "dryRun": True}),
        ("POST", "/api/v1/encryption/shred", {"queue": "orders", "dryRun": True}),
    ):
        reply = admin.post(path, body) if method == "POST" else admin.request(method, path)
        assert reply.status == 200, (path, reply)
    assert {one["outcome"] for one in entries(admin)} == {"dry run"}
    assert [one["count"] for one in entries(admin)][2:4] == [1, 1]


def test_what_is_done_has_its_count_and_what_fails_its_error(admin: Caller) -> None:
    with_dead_letter(admin)

    admin.post("/api/v1/dlq/replay", {"queue": "orders"})
    assert newest(admin) == ("replay dead letters", "dead letter 1 of queue orders.dead", 1, None, None, "done")
    admin.post("/api/v1/queues/nowhere/clear")
    failed = entries(admin)[0]
    assert (failed["outcome"], failed["error"], failed["target"]) == ("failed", "QUEUE_NOT_FOUND", "queue nowhere")
    admin.post("/api/v1/consumer-groups/__QUEUE_MODE__/seek", {"queue": "orders", "to": "beginning"})
    verb, target, count, before, after, outcome = newest(admin)
    assert (verb, target, after, outcome) == ("seek group", "group __QUEUE_MODE__ of queue orders", "seq 0", "done")
    assert count is not None
    assert before.startswith("seq ")
    admin.post("/api/v1/consumer-groups/g/release", {"queue": "orders", "partition": "p"})
    assert newest(admin)[:2] == ("release leases", "partition p of queue orders, group g")


def test_purged_dead_letters_are_named(admin: Caller) -> None:
    with_dead_letter(admin)
    [letter] = admin.get("/api/v1/dlq?queue=orders").json["deadLetters"]

    admin.post("/api/v1/dlq/purge", {"queue": "orders", "ids": [letter["id"]]})

    named = f"dead letter {letter['id']} of queue orders.dead"
    assert newest(admin) == ("purge dead letters", named, 1, None, None, "done")


def test_changed_settings_are_told_as_they_were_and_as_they_are(door: Door, admin: Caller) -> None:
    admin.post("/api/v1/configure", {"queue": "orders", "settings": {"max_attempts": 5}})
    assert newest(admin) == ("configure queue", "queue orders", 1, "no queue", "max_attempts=5", "done")

    admin.post("/api/v1/configure", {"queue": "orders", "settings": {"max_attempts": 7, "max_depth": 0}})
    assert newest(admin) == ("configure queue", "queue orders", 1, "max_attempts=5", "max_attempts=7", "done")

    assert form(door, admin, "/queues/orders/settings", b"was-max_attempts=7&max_attempts=9") == 303
    assert newest(admin) == ("configure queue", "queue orders", 1, "max_attempts=7", "max_attempts=9", "done")


def test_a_resume_is_not_called_a_pause(door: Door, admin: Caller) -> None:
    admin.push("orders", 1)
    for body, verb, states in (
        (b"paused=yes", "pause", ("False", "True")),
        (b"paused=no", "resume", ("True", "False")),
    ):
        assert form(door, admin, "/queues/orders/pause", body) == 303
        was, now = (f"paused={state}" for state in states)
        assert newest(admin) == (f"{verb} queue", "queue orders", 1, was, now, "done")
    for verb in ("pause", "resume"):
        admin.post(f"/api/v1/queues/orders/{verb}")
        assert newest(admin)[0] == f"{verb} queue"


@pytest.mark.parametrize(
    ("path", "body", "verb"),
    [
        ("/queues/orders/clear", b"scope=pending&confirm=n", "clear queue"),
        ("/dead-letters/orders.dead/purge", b"confirm=n", "purge dead letters"),
        ("/queues/orders/groups/__QUEUE_MODE__/delete", b"confirm=n", "delete group"),
    ],
)
def test_what_was_not_confirmed_is_declined(door: Door, admin: Caller, path: str, body: bytes, verb: str) -> None:
    with_dead_letter(admin)

    form(door, admin, path, body)

    assert (newest(admin)[0], newest(admin)[-1]) == (verb, "declined")
    assert len(admin.get("/api/v1/dlq?queue=orders").json["deadLetters"]) == 1


def test_a_key_that_is_made_and_revoked_is_told_with_its_grants(door: Door) -> None:
    everywhere = door.caller(*ALL, tenants=["*"], tenant=door.tenant)
    grants = [{"role": "write-only", "queues": ["orders"], "tenants": [door.tenant]}]
    made = everywhere.post("/api/v1/keys", {"name": "x", "grants": grants}).json["key"]["id"]
    everywhere.request("DELETE", f"/api/v1/keys/{made}")

    revoked, created = everywhere.get("/api/v1/audit?everywhere=true&limit=2").json["entries"]

    granted = f"push on orders of {door.tenant}"
    assert (created["verb"], created["target"], created["after"]) == ("create key", f"key {made}", granted)
    assert (revoked["verb"], revoked["before"], revoked["after"]) == ("revoke key", granted, "revoked")


def test_the_page_shows_verb_target_count_before_and_after(door: Door, admin: Caller) -> None:
    admin.post("/api/v1/configure", {"queue": "orders", "settings": {"max_attempts": 5}})
    admin.post("/api/v1/queues/orders/clear", {"dryRun": True})

    page = admin.get("/operations/audit").body.decode()

    for text in (
        "<h1>",
        "Audit log",
        "configure queue",
        "queue orders",
        "no queue",
        "max_attempts=5",
        "dry run",
        "done",
    ):
        assert text in page, text
    for heading in ("Verb", "Target", "Count", "Before", "After", "Outcome"):
        assert f">{heading}</th>" in page


def test_every_audited_route_has_words_of_its_own(door: Door) -> None:
    for one in door.server.app.every_route:
        if is_audited(one.method, one.access):
            verb = verb_of(f"{one.method} {one.path}")
            assert verb
            assert "/" not in verb
            assert "{" not in verb


def test_entries_of_before_are_told_in_the_same_words() -> None:
    def entry(outcome: str | None) -> AuditEntry:
        return AuditEntry(
            at=0, actor="a", action="POST /queues/{queue}/pause", queues=("q",), outcome=outcome, expires_at=1  # type: ignore[arg-type]
        )  # fmt: skip

    assert [told(entry(one)).outcome for one in ("done", "QUEUE_NOT_FOUND", None)] == [
        "done",
        AuditOutcome.FAILED,
        None,
    ]
    assert told(entry("QUEUE_NOT_FOUND")).detail.error == "QUEUE_NOT_FOUND"
    assert (told(entry("done")).detail.verb, told(entry("done")).detail.target) == ("pause queue", "queue q")


def test_who_may_not_read_the_log_does_not(door: Door) -> None:
    assert door.caller(Verb.READ).get("/operations/audit").status == 403


def test_a_deleted_message_is_named_with_whom_it_was_taken_from(door: Door, admin: Caller) -> None:
    admin.push("orders", 1, 2, 3)
    admin.pop("orders")

    admin.request("DELETE", "/api/v1/resources/queues/orders/messages/1?dryRun=true")
    target, before = "message 1 of queue orders", "pending for __QUEUE_MODE__, 1 under a lease"
    assert newest(admin) == ("delete message", target, 1, before, None, "dry run")
    admin.request("DELETE", "/api/v1/resources/queues/orders/messages/1")
    assert newest(admin) == ("delete message", target, 1, before, "deleted", "done")
    admin.request("DELETE", "/api/v1/resources/queues/orders/messages/1")
    assert newest(admin) == ("delete message", target, None, None, None, "failed")
    assert entries(admin)[0]["error"] == "MESSAGE_NOT_FOUND"
    message = admin.get("/api/v1/resources/queues/orders/messages/2").json["id"]
    assert form(door, admin, "/queues/orders/messages/2/delete", f"id={message}".encode()) == 303
    assert newest(admin)[:3] == ("delete message", "message 2 of queue orders", 1)


def test_forgotten_messages_are_told_by_their_seqs_and_never_by_what_was_in_them(door: Door, admin: Caller) -> None:
    admin.push("orders", 1, 2, 3, partition="ann")
    admin.push("orders", 4, partition="bob")

    def forget(**wanted: object) -> None:
        assert admin.post("/api/v1/queues/orders/forget", wanted).status == 200

    forget(seqs=[1], dryRun=True)
    assert newest(admin) == ("forget messages", "queue orders, by seq", 1, None, None, "dry run")
    forget(seqs=[1])
    assert newest(admin) == ("forget messages", "queue orders, by seq", 1, None, "forgotten: seqs 1", "done")
    forget(partition="ann")
    assert newest(admin) == ("forget messages", "queue orders, by partition", 2, None, "forgotten: seqs 2-3", "done")
    assert "ann" not in str(entries(admin))
    assert admin.post("/api/v1/queues/orders/forget", {"seqs": [9]}).status == 422
    assert newest(admin) == ("forget messages", "queue orders, by seq", None, None, None, "failed")


def test_a_key_that_only_reads_forgets_nothing_and_sees_what_was_forgotten(door: Door, admin: Caller) -> None:
    admin.push("orders", 1, 2)
    reader, consumer = door.caller(Verb.READ), door.caller(Verb.POP)

    for who in (reader, consumer):
        assert who.post("/api/v1/queues/orders/forget", {"seqs": [1]}).status == 403
    assert admin.post("/api/v1/queues/orders/forget", {"seqs": [1]}).status == 200

    assert len(reader.get("/api/v1/log/orders/forgotten").json["forgotten"]) == 1
    assert consumer.get("/api/v1/log/orders/forgotten").status == 403


def test_a_key_that_only_reads_deletes_nothing_and_sees_no_control(door: Door, admin: Caller) -> None:
    admin.push("orders", 1)
    reader = door.caller(Verb.READ)

    refused = reader.request("DELETE", "/api/v1/resources/queues/orders/messages/1")

    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert reader.request("DELETE", "/api/v1/messages/Default/t?queue=orders").status == 403
    for who, shown in ((admin, True), (reader, False)):
        page = who.get("/messages?q=queue:orders&seq=1")
        assert ("/queues/orders/messages/1/delete" in page.body.decode()) is shown
        asked = who.get("/queues/orders/messages/1/delete").body.decode()
        assert ("<button" in asked and "Delete permanently" in asked) is shown
    assert form(door, reader, "/queues/orders/messages/1/delete", b"id=" + b"0" * 32) == 403
    assert admin.get("/api/v1/resources/queues/orders/messages/1").status == 200
