"""What well-known senders post is taken as they post it: Svix and those who send through it, GitHub's forms, PagerDuty."""

from __future__ import annotations

import json
from urllib.parse import quote_plus, urlencode

import pytest

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.spec import check
from skep.spec.ir import Algorithm, Scheme, Verify
from skep.webhooks.forms import CHUNK_BYTES, payload_of
from skep.webhooks.signatures import compile_verifier
from tests.webhooks import samples, signing
from tests.webhooks.driver import OLD_SECRET, SECRET, SECRETS, Sender

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
STANDARD = Verify(scheme=Scheme.STANDARD_WEBHOOKS, secret_env=["STANDARD_SECRET"])
SVIX_EXAMPLE = {
    "svix-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "svix-timestamp": "1614265330",
    "svix-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
SVIX_BODY, SVIX_NOW = b'{"test": 2432232314}', Instant(1_614_265_330_000_000)
SPEC = """
app Senders {
  queue Q {}
  webhook Clerk { queue: Q, verify_standard_webhooks { secret_env: "STANDARD_SECRET" } }
  webhook Keyed { queue: Q, verify_standard_webhooks { secret_env: ["PUBLIC_KEY"] } }
  webhook BySvix {
    queue: Q
    verify_standard_webhooks { secret_env: "STANDARD_SECRET" }
    idempotency { header: "svix-id" }
  }
  webhook GitHub { queue: Q, verify_github { secret_env: "SECRET" } }
  webhook Quarantined { queue: Typed, verify_github { secret_env: "SECRET" } }
  queue Typed { message_type { payload: string }, on_invalid: quarantine }
  webhook PagerDutyAlert {
    queue: Q
    verify_hmac {
      header: "X-PagerDuty-Signature"
      secret_env: ["SECRET", "OLD_SECRET"]
    }
  }
}
"""


def svix(headers: dict[str, str]) -> dict[str, str]:
    """Headers of Standard Webhooks by the names that Svix gives them."""
    return {name.replace("webhook-", "svix-"): value for name, value in headers.items()}


def refusal(verify: Verify, headers: dict[str, str], body: bytes, now: Instant) -> Code | None:
    verifier = compile_verifier(verify, SECRETS)
    assert verifier is not None
    try:
        verifier([(name.lower().encode(), value.encode()) for name, value in headers.items()], body, now)
    except SkepError as error:
        return error.code
    return None


@pytest.fixture
def senders(sender: Sender) -> Sender:
    sender.apply(SPEC)
    return sender


def test_the_example_that_svix_publishes_is_taken() -> None:
    assert refusal(STANDARD, SVIX_EXAMPLE, SVIX_BODY, SVIX_NOW) is None
    assert refusal(STANDARD, SVIX_EXAMPLE, SVIX_BODY + b" ", SVIX_NOW) is Code.SIGNATURE_INVALID
    assert refusal(STANDARD, SVIX_EXAMPLE, SVIX_BODY, Instant(SVIX_NOW + 301_000_000)) is Code.SIGNATURE_INVALID


@pytest.mark.parametrize("left_out", sorted(SVIX_EXAMPLE))
def test_one_header_of_svix_alone_proves_nothing(left_out: str) -> None:
    headers = {name: value for name, value in SVIX_EXAMPLE.items() if name != left_out}

    assert refusal(STANDARD, headers, SVIX_BODY, SVIX_NOW) is Code.SIGNATURE_INVALID


def test_the_two_families_are_not_mixed() -> None:
    """The id of one family does not go with the signature of the other, and one that nobody signed may not stand beside it."""
    mixed = {**SVIX_EXAMPLE, "webhook-id": SVIX_EXAMPLE["svix-id"]}
    del mixed["svix-id"]
    assert refusal(STANDARD, mixed, SVIX_BODY, SVIX_NOW) is Code.SIGNATURE_INVALID
    beside = {**SVIX_EXAMPLE, "webhook-id": "msg_another"}
    assert refusal(STANDARD, beside, SVIX_BODY, SVIX_NOW) is Code.SIGNATURE_MALFORMED
    same = {**SVIX_EXAMPLE, **{name.replace("svix-", "webhook-"): value for name, value in SVIX_EXAMPLE.items()}}
    assert refusal(STANDARD, same, SVIX_BODY, SVIX_NOW) is None
    forged = {**same, "webhook-signature": "v1," + "A" * 43 + "="}
    assert refusal(STANDARD, forged, SVIX_BODY, SVIX_NOW) is Code.SIGNATURE_INVALID


def test_what_svix_posts_is_stored_once_by_its_id(senders: Sender) -> None:
    bodies = [b'{"type": "user.created"}', b'{"type": "user.updated"}']
    first, again, other = [
        senders.post("Clerk", body, svix(signing.standard(body, signing.STANDARD_SECRET, senders.seconds, id_)))
        for body, id_ in ((bodies[0], "msg_1"), (bodies[1], "msg_1"), (bodies[1], "msg_2"))
    ]

    assert [reply.status for reply in (first, again, other)] == [202, 202, 202]
    assert first.json["idempotency_key"] == "msg_1"
    assert again.body == first.body
    assert [message["payload"] for message in senders.stored("Q")] == [json.loads(body) for body in bodies]


def test_what_is_signed_by_a_private_key_is_stored_once_and_nothing_else_is(senders: Sender) -> None:
    body = b'{"type": "user.created"}'
    signed = signing.standard_by_key(body, signing.PRIVATE_KEY, senders.seconds)
    by_the_public_key = signing.standard(body, "whsec_" + signing.PUBLIC_KEY.removeprefix("whpk_"), senders.seconds)
    both = {**signed, "webhook-signature": f"{by_the_public_key['webhook-signature']} {signed['webhook-signature']}"}
    late = signing.standard_by_key(body, signing.PRIVATE_KEY, senders.seconds - 301, "msg_2")

    assert senders.post("Keyed", body, by_the_public_key).status == 400  # it has no v1a
    for refused in (late, {**signed, "webhook-id": "msg_2"}):
        assert senders.post("Keyed", body, refused).status == 401
    assert senders.post("Keyed", body + b" ", signed).status == 401
    assert senders.stored("Q") == []
    for taken in (signed, svix(signed), both):
        assert senders.post("Keyed", body, taken).status == 202
    assert [message["payload"] for message in senders.stored("Q")] == [json.loads(body)]


@pytest.mark.parametrize("webhook", ["Clerk", "BySvix"])
def test_an_overheard_request_has_one_key_by_either_name(senders: Sender, webhook: str) -> None:
    """Whoever overheard a request of Svix could rename its headers, and write whatever they like under the old names."""
    body = b'{"type": "user.created"}'
    headers = signing.standard(body, signing.STANDARD_SECRET, senders.seconds, "msg_1")

    taken = [senders.post(webhook, body, how) for how in (svix(headers), headers)]
    forged = senders.post(webhook, body, {**headers, "svix-id": "msg_7"})

    assert [reply.status for reply in taken] == [202, 202]
    assert taken[0].body == taken[1].body
    assert (forged.status, forged.code) == (400, "SIGNATURE_MALFORMED")
    assert len(senders.stored("Q")) == 1


def test_a_key_by_the_id_of_svix_is_signed() -> None:
    assert check(SPEC, "senders.skep").rendered == []


def form(value: object) -> bytes:
    return urlencode({"payload": json.dumps(value)}).encode()


def test_a_form_of_github_is_the_payload_in_it(senders: Sender) -> None:
    push = samples.github_push()
    body = form(push)
    headers = {**signing.github(body, SECRET, "72d3162e", "push"), **FORM}

    first, again = [senders.post("GitHub", body, headers) for _ in range(2)]

    assert (first.status, again.body) == (202, first.body)
    assert [message["payload"] for message in senders.stored("Q")] == [push]


def test_the_signature_of_a_form_is_over_the_body_as_it_came(senders: Sender) -> None:
    push = samples.github_push()
    over_the_payload = {**signing.github(json.dumps(push).encode(), SECRET, "72d3162e", "push"), **FORM}

    assert senders.post("GitHub", form(push), over_the_payload).status == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"payload=%7B%22a%22%3A+%22b%2Bc%22%7D", 202),
        (b"other=1&payload=%7B%7D&more=2", 202),
        (b'{"a": "x&payload={}"}', 202),
        (b"payload=%7B%7D&payload=%7B%7D", 400),
        (b"payload=", 400),
        (b"payload=%ZZ", 400),
        (b"payload=%ff", 400),
        (b"xpayload=%7B%7D", 400),
        (b"a=1", 400),
        (b"", 400),
        (b"payload=" + b"%5B" * 200 + b"%5D" * 200, 422),
    ],
)
def test_a_form_is_read_like_any_other_body(senders: Sender, body: bytes, status: int) -> None:
    headers = {
        **signing.github(body, SECRET, "1", "push"),
        "Content-Type": "Application/X-WWW-Form-URLencoded; charset=utf-8",
    }

    assert senders.post("GitHub", body, headers).status == status
    assert len(senders.stored("Q")) == (status == 202)


def test_a_form_without_its_content_type_is_no_json(senders: Sender) -> None:
    body = form({})

    assert senders.post("GitHub", body, signing.github(body, SECRET, "1", "push")).status == 400


def test_a_form_in_quarantine_is_its_payload(senders: Sender) -> None:
    body = form({"a": 1})

    reply = senders.post("Quarantined", body, {**signing.github(body, SECRET, "1", "push"), **FORM})

    assert (reply.status, reply.json["quarantined"]) == (202, True)
    [letter] = senders.dead("Typed")
    assert letter["payload"] == {"payload": {"a": 1}}


@pytest.mark.parametrize("shift", range(4))
def test_a_large_form_is_decoded_whole(shift: int) -> None:
    text = "x" * (CHUNK_BYTES - shift) + 'é"%& +' * CHUNK_BYTES

    assert payload_of(b"payload=" + quote_plus(text).encode()) == text.encode()


def test_verify_hmac_with_the_header_of_pagerduty_takes_what_pagerduty_signs(senders: Sender) -> None:
    """A spec that names the header and not the prefix."""
    bodies = [json.dumps(samples.pagerduty(event_id=f"event-{number}")).encode() for number in range(4)]
    secrets = [(SECRET,), (OLD_SECRET,), ("another secret", SECRET), ("another secret",)]

    replies = [
        senders.post("PagerDutyAlert", body, signing.pagerduty(body, *which))
        for body, which in zip(bodies, secrets, strict=True)
    ]

    assert [reply.status for reply in replies] == [202, 202, 202, 401]
    assert len(senders.stored("Q")) == 3


def test_verify_hmac_with_the_header_of_github_takes_its_prefix_too() -> None:
    signed = {"X-Hub-Signature-256": "sha256=" + signing.hexed(SECRET, b"{}")}
    for prefix in ("", "sha256="):
        verify = Verify(scheme=Scheme.HMAC, header="x-hub-signature-256", prefix=prefix, secret_env=["SECRET"])
        assert refusal(verify, signed, b"{}", SVIX_NOW) is None
    other = Verify(scheme=Scheme.HMAC, header="X-Hub-Signature-256", algorithm=Algorithm.SHA512, secret_env=["SECRET"])
    assert refusal(other, {"X-Hub-Signature-256": signing.hexed(SECRET, b"{}", "sha512")}, b"{}", SVIX_NOW) is None


@pytest.mark.parametrize(
    ("header", "block"),
    [
        ("Stripe-Signature", "verify_stripe"),
        ("X-Slack-Signature", "verify_slack"),
        ("svix-signature", "verify_standard_webhooks"),
        ("Webhook-Signature", "verify_standard_webhooks"),
        ("X-Hub-Signature", "verify_github"),
    ],
)
def test_check_says_what_to_write_where_verify_hmac_cannot_take_a_sender(header: str, block: str) -> None:
    text = f'app A {{\n  queue Q {{}}\n  webhook W {{\n    queue: Q\n    verify_hmac {{\n      header: "{header}"\n      secret_env: "S"\n    }}\n  }}\n}}\n'

    checked = check(text, "a.skep")

    [problem] = checked.problems
    assert checked.usable
    assert (problem.line, problem.expected) == (6, f'{block} {{ secret_env: "S" }}')
