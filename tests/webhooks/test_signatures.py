"""Signatures are verified over the raw bytes, by every scheme, and tell nothing but yes or no.

GitHub's, Slack's and Standard Webhooks' own published examples are among the cases; the others are signed here by hand.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.spec.ir import Algorithm, Encoding, Scheme, Verify
from skep.webhooks.signatures import SIGNATURES_MAX, compile_verifier

BODY = b'{"incident": {"id": "PT4KHLK"}}'
NOW_SECONDS = 1_750_000_000
NOW = Instant(NOW_SECONDS * 1_000_000)
SECRETS = {
    "NEW": "a new and long secret",
    "OLD": "an old and long secret",
    "BASE64": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}
BOTH = ["NEW", "OLD"]

Headers = dict[str, str]


def outcome(verify: Verify, headers: Headers, body: bytes = BODY, now: int = NOW) -> Code | None:
    """What a verifier says: None, or the code of its refusal."""
    verifier = compile_verifier(verify, SECRETS | {"GITHUB": "It's a Secret to Everybody", "SLACK": SLACK_SECRET})
    assert verifier is not None
    try:
        verifier([(name.lower().encode(), value.encode()) for name, value in headers.items()], body, Instant(now))
    except SkepError as error:
        leaked = [secret for secret in SECRETS.values() if secret in str(error)]
        return Code.INTERNAL if leaked else error.code
    return None


def hexed(secret: str, content: bytes = BODY, algorithm: str = "sha256") -> str:
    return hmac.new(secret.encode(), content, algorithm).hexdigest()


def stripe(secret: str, at: int = NOW_SECONDS) -> Headers:
    return {"Stripe-Signature": f"t={at},v1={hexed(secret, b'%d.' % at + BODY)}"}


def slack(secret: str, at: int = NOW_SECONDS) -> Headers:
    signature = hexed(secret, b"v0:%d:" % at + BODY)
    return {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": str(at)}


def standard(secret: str, at: int = NOW_SECONDS, id_: str = "msg_1") -> Headers:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id_}.{at}.".encode() + BODY, hashlib.sha256).digest()
    signature = "v1," + base64.b64encode(digest).decode()
    return {"webhook-id": id_, "webhook-timestamp": str(at), "webhook-signature": signature}


HMAC = Verify(scheme=Scheme.HMAC, header="X-Signature", secret_env=BOTH)
GITHUB = Verify(scheme=Scheme.GITHUB, secret_env=BOTH)
PAGERDUTY = Verify(scheme=Scheme.PAGERDUTY, secret_env=BOTH)
STRIPE = Verify(scheme=Scheme.STRIPE, secret_env=BOTH)
SLACK = Verify(scheme=Scheme.SLACK, secret_env=BOTH)
STANDARD = Verify(scheme=Scheme.STANDARD_WEBHOOKS, secret_env=["BASE64"])

SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2F"
    b"hooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id="
    b"398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def test_the_example_of_github() -> None:
    verify = Verify(scheme=Scheme.GITHUB, secret_env=["GITHUB"])
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert outcome(verify, {"X-Hub-Signature-256": signature}, b"Hello, World!") is None


def test_the_example_of_slack() -> None:
    verify = Verify(scheme=Scheme.SLACK, secret_env=["SLACK"])
    headers = {
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        "X-Slack-Request-Timestamp": "1531420618",
    }
    assert outcome(verify, headers, SLACK_BODY, 1_531_420_618_000_000) is None


def test_the_example_of_standard_webhooks() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert outcome(STANDARD, headers, b'{"test": 2432232314}', 1_614_265_330_000_000) is None


SIGNED = {
    "hmac": (HMAC, {"X-Signature": hexed("a new and long secret")}),
    "github": (GITHUB, {"X-Hub-Signature-256": "sha256=" + hexed("a new and long secret")}),
    "pagerduty": (PAGERDUTY, {"X-PagerDuty-Signature": "v1=" + hexed("a new and long secret")}),
    "stripe": (STRIPE, stripe("a new and long secret")),
    "slack": (SLACK, slack("a new and long secret")),
    "standard": (STANDARD, standard(SECRETS["BASE64"])),
}
SCHEMES = pytest.mark.parametrize(("verify", "headers"), SIGNED.values(), ids=SIGNED.keys())
TIMED = pytest.mark.parametrize("scheme", ["stripe", "slack", "standard"])


@SCHEMES
def test_a_right_signature_is_taken(verify: Verify, headers: Headers) -> None:
    assert outcome(verify, headers) is None


@SCHEMES
def test_another_body_is_refused(verify: Verify, headers: Headers) -> None:
    assert outcome(verify, headers, BODY + b" ") is Code.SIGNATURE_INVALID


@SCHEMES
def test_a_missing_signature_is_refused(verify: Verify, headers: Headers) -> None:
    assert outcome(verify, {}) is Code.SIGNATURE_INVALID
    for name in headers:
        assert outcome(verify, {other: headers[other] for other in headers if other != name}) is Code.SIGNATURE_INVALID
        assert outcome(verify, {**headers, name: ""}) is Code.SIGNATURE_INVALID


@SCHEMES
@pytest.mark.parametrize("broken", ["yes", "v1=", "v1,", "v0=zz", "sha256=12", "t=1,v1=zz", "=,=", "v9=" + "ab" * 32])
def test_what_cannot_be_a_signature_is_malformed(verify: Verify, headers: Headers, broken: str) -> None:
    name = next(name for name in headers if "signature" in name.lower())
    assert outcome(verify, {**headers, name: broken}) is Code.SIGNATURE_MALFORMED


@SCHEMES
def test_a_header_that_comes_twice_is_malformed(verify: Verify, headers: Headers) -> None:
    verifier = compile_verifier(verify, SECRETS)
    assert verifier is not None
    twice = [(name.lower().encode(), value.encode()) for name, value in headers.items()] * 2
    with pytest.raises(SkepError) as refused:
        verifier(twice, BODY, NOW)
    assert refused.value.code is Code.SIGNATURE_MALFORMED


@SCHEMES
def test_a_signature_by_a_stranger_is_refused(verify: Verify, headers: Headers) -> None:
    other = compile_verifier(verify, dict.fromkeys(SECRETS, base64.b64encode(b"a stranger's secret").decode()))
    assert other is not None
    with pytest.raises(SkepError) as refused:
        other([(name.lower().encode(), value.encode()) for name, value in headers.items()], BODY, NOW)
    assert refused.value.code is Code.SIGNATURE_INVALID


@pytest.mark.parametrize("signed", [stripe, slack])
def test_any_of_the_secrets_will_do(signed: object) -> None:
    assert callable(signed)
    verify = STRIPE if signed is stripe else SLACK
    for secret, expected in (
        ("a new and long secret", None),
        ("an old and long secret", None),
        ("gone", Code.SIGNATURE_INVALID),
    ):
        assert outcome(verify, signed(secret)) is expected


def test_one_right_signature_of_several_is_enough() -> None:
    wrong, right = hexed("their next secret"), hexed("an old and long secret")
    for several in (f"v1={wrong},v1={right}", f"v1={right}, v1={wrong}", f"v2=new,v1=zz,v1={right}"):
        assert outcome(PAGERDUTY, {"X-PagerDuty-Signature": several}) is None
    assert outcome(PAGERDUTY, {"X-PagerDuty-Signature": f"v1={wrong},v1={wrong}"}) is Code.SIGNATURE_INVALID
    assert outcome(HMAC, {"X-Signature": f"{wrong},{right}"}) is None


def test_stripe_and_standard_webhooks_may_send_several_too() -> None:
    other = stripe("their next secret")["Stripe-Signature"].partition(",")[2]
    assert (
        outcome(STRIPE, {"Stripe-Signature": stripe("an old and long secret")["Stripe-Signature"] + f",{other},v0=zz"})
        is None
    )
    headers = standard(SECRETS["BASE64"])
    several = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== "
    assert outcome(STANDARD, {**headers, "webhook-signature": several + headers["webhook-signature"]}) is None


def test_a_flood_of_signatures_is_malformed() -> None:
    flood = ",".join(["v1=" + hexed("no")] * SIGNATURES_MAX + ["v1=" + hexed("a new and long secret")])
    assert outcome(PAGERDUTY, {"X-PagerDuty-Signature": flood}) is Code.SIGNATURE_MALFORMED


def test_a_version_that_is_not_ours_does_not_count() -> None:
    signature = stripe("a new and long secret")["Stripe-Signature"].replace("v1=", "v0=")
    assert outcome(STRIPE, {"Stripe-Signature": signature}) is Code.SIGNATURE_MALFORMED


def timed(scheme: str, at: int) -> tuple[Verify, Headers]:
    if scheme == "stripe":
        return STRIPE, stripe("a new and long secret", at)
    return (
        (SLACK, slack("a new and long secret", at))
        if scheme == "slack"
        else (STANDARD, standard(SECRETS["BASE64"], at))
    )


@TIMED
@pytest.mark.parametrize("off", [-300, 0, 300])
def test_a_signature_within_its_tolerance_is_taken(scheme: str, off: int) -> None:
    assert outcome(*timed(scheme, NOW_SECONDS + off)) is None


@TIMED
@pytest.mark.parametrize("off", [-301, 301, -NOW_SECONDS])
def test_a_replayed_signature_is_refused_though_it_is_right(scheme: str, off: int) -> None:
    assert outcome(*timed(scheme, NOW_SECONDS + off)) is Code.SIGNATURE_INVALID


@TIMED
def test_the_time_is_part_of_what_is_signed(scheme: str) -> None:
    verify, headers = timed(scheme, NOW_SECONDS)
    moved = {name: value.replace(str(NOW_SECONDS), str(NOW_SECONDS + 1)) for name, value in headers.items()}
    assert outcome(verify, moved) is Code.SIGNATURE_INVALID


@TIMED
@pytest.mark.parametrize("text", ["", "now", "-1", "1.5", "1e9", "0001750000000", "9" * 40, "\uff11"])
def test_what_is_no_time_is_malformed(scheme: str, text: str) -> None:
    verify, headers = timed(scheme, NOW_SECONDS)
    broken = {name: value.replace(str(NOW_SECONDS), text) for name, value in headers.items()}
    expected = Code.SIGNATURE_INVALID if not text and scheme != "stripe" else Code.SIGNATURE_MALFORMED
    assert outcome(verify, broken) is expected


def test_stripe_says_one_time() -> None:
    signature = stripe("a new and long secret")["Stripe-Signature"]
    assert outcome(STRIPE, {"Stripe-Signature": f"t=1,{signature}"}) is Code.SIGNATURE_MALFORMED
    assert outcome(STRIPE, {"Stripe-Signature": signature.partition(",")[2]}) is Code.SIGNATURE_MALFORMED


@pytest.mark.parametrize("algorithm", Algorithm)
@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize("prefix", ["", "sha=", "signature "])
def test_a_plain_hmac_is_what_the_spec_says(algorithm: Algorithm, encoding: Encoding, prefix: str) -> None:
    verify = Verify(
        scheme=Scheme.HMAC, header="X-Sig", secret_env=BOTH, prefix=prefix, encoding=encoding, algorithm=algorithm
    )
    digest = hmac.new(b"an old and long secret", BODY, str(algorithm)).digest()
    text = digest.hex() if encoding is Encoding.HEX else base64.b64encode(digest).decode()
    assert outcome(verify, {"x-sig": prefix + text}) is None
    assert outcome(verify, {"x-sig": prefix + text}, BODY[:-1]) is Code.SIGNATURE_INVALID
    if prefix:
        assert outcome(verify, {"x-sig": text}) is Code.SIGNATURE_MALFORMED
    other = hmac.new(b"an old and long secret", BODY, "md5").hexdigest()
    assert outcome(verify, {"x-sig": prefix + other}) is Code.SIGNATURE_MALFORMED


def test_large_and_small_hex_digits_are_the_same() -> None:
    assert outcome(HMAC, {"X-Signature": hexed("a new and long secret").upper()}) is None


def test_a_body_that_is_no_text_is_signed_as_its_bytes() -> None:
    body = bytes(range(256))
    assert outcome(HMAC, {"X-Signature": hexed("a new and long secret", body)}, body) is None
    assert outcome(STANDARD, standard(SECRETS["BASE64"]), body) is Code.SIGNATURE_MALFORMED


def test_without_a_scheme_there_is_no_verifier() -> None:
    assert compile_verifier(None, {}) is None
    assert compile_verifier(Verify(scheme=Scheme.NONE), {}) is None


@pytest.mark.parametrize("secrets", [{}, {"NEW": "a" * 16}, {"NEW": "a" * 16, "OLD": ""}])
def test_a_secret_that_is_missing_is_an_error_at_the_start(secrets: dict[str, str]) -> None:
    with pytest.raises(SkepError, match=r"the environment has neither (NEW|OLD)"):
        compile_verifier(HMAC, secrets)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_!!", "not base64!"])
def test_a_secret_that_its_scheme_cannot_use_is_an_error_at_the_start(secret: str) -> None:
    with pytest.raises(SkepError, match="BASE64 is not a secret of Standard Webhooks") as refused:
        compile_verifier(STANDARD, {"BASE64": secret})
    assert refused.value.code is Code.INVALID_SPEC


@pytest.mark.parametrize("verify", [HMAC, GITHUB, PAGERDUTY, STRIPE, SLACK], ids=lambda verify: str(verify.scheme))
def test_a_secret_that_could_be_guessed_is_an_error_at_the_start(verify: Verify) -> None:
    """B10: a secret of one byte was taken."""
    for secret in ("x", "fifteen bytes .", "é" * 7):
        with pytest.raises(SkepError, match=r"the secret in (NEW|OLD) is too short") as refused:
            compile_verifier(verify, {"NEW": secret, "OLD": secret})
        assert refused.value.code is Code.INVALID_SPEC
        assert secret == "x" or secret not in str(refused.value)
    assert compile_verifier(verify, {"NEW": "é" * 8, "OLD": "x" * 16}) is not None


def test_the_key_of_a_standard_webhook_is_as_long_once_it_is_decoded() -> None:
    short = "whsec_" + base64.b64encode(b"x" * 15).decode()
    with pytest.raises(SkepError, match="the secret in BASE64 is too short: it has 15 bytes, and 16 are the least"):
        compile_verifier(STANDARD, {"BASE64": short})
    assert compile_verifier(STANDARD, {"BASE64": base64.b64encode(b"x" * 16).decode()}) is not None


def test_a_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("a new and long secret\n")
    verify = compile_verifier(HMAC, {"NEW_FILE": str(file), "OLD": "an old and long secret"})
    assert verify is not None
    verify([(b"x-signature", hexed("a new and long secret").encode())], BODY, Instant(0))
    file.write_text("")
    with pytest.raises(SkepError, match="the file of NEW_FILE is empty"):
        compile_verifier(HMAC, {"NEW_FILE": str(file), "OLD": "an old and long secret"})
