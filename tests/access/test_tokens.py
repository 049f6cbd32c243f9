"""Tokens: what the issuer signed counts, and nothing else does, whatever it says of itself."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from skep.access.keysets import KeySource, read_keys
from skep.access.tokens import Tokens, Verified
from skep.clock import MICROS_PER_SECOND, ManualClock
from skep.config import AccessSettings
from skep.errors import SkepError
from skep.model.key import Verb
from skep.testing.server import running_server
from tests.access.driver import Door

SECRET = "s" * 32
RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
ED = ed25519.Ed25519PrivateKey.generate()
GRANTS = {"role": "read-write", "tenants": ["acme"], "queues": ["orders*"]}


def pem(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return found


def jwk(key: Any, kid: str | None, **more: Any) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.OKPAlgorithm
    told: dict[str, Any] = {**kind.to_jwk(key.public_key(), as_dict=True), **more}
    return told if kid is None else {**told, "kid": kid}


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": keys}).encode()


def b64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def signed_by_hand(header: dict[str, Any], claims: dict[str, Any]) -> bytes:
    """A token as the library would not write it."""
    body = b64(json.dumps({"alg": "RS256", **header}).encode()) + b"." + b64(json.dumps(claims).encode())
    algorithm = jwt.algorithms.RSAAlgorithm(jwt.algorithms.RSAAlgorithm.SHA256)
    return body + b"." + b64(algorithm.sign(body, RSA))


class Issuer:
    """Someone whose tokens count, and a clock."""

    def __init__(self, folder: Path, algorithms: str, keys: bytes | str) -> None:
        self.clock = ManualClock()
        place = folder / "keys"
        if isinstance(keys, bytes):
            place.write_bytes(keys)
        self.settings = AccessSettings(
            jwt_algorithms=algorithms, jwt_keys=keys if isinstance(keys, str) else str(place), jwt_issuer="https://issuer",
            jwt_audience="skep", jwt_leeway_seconds=10.0, jwt_keys_seconds=300.0,
        )  # fmt: skip
        self.source = KeySource(self.settings, self.clock)
        self.tokens = Tokens(self.settings, self.clock, self.source)

    def claims(self, **changed: Any) -> dict[str, Any]:
        now = self.clock.now() // MICROS_PER_SECOND
        claims = {"iss": "https://issuer", "aud": "skep", "sub": "ann", "exp": now + 60, "skep": GRANTS, **changed}
        return {name: value for name, value in claims.items() if value is not ...}

    async def verified(self, token: str) -> Verified:
        await self.source.start()
        return await self.tokens.verified(token)

    async def refused(self, token: str | bytes) -> str:
        await self.source.start()
        with pytest.raises(SkepError) as refused:
            await self.tokens.verified(token.decode() if isinstance(token, bytes) else token)
        assert refused.value.code == "UNAUTHENTICATED"
        return refused.value.message


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path, "RS256", pem(RSA))


@pytest.mark.parametrize(
    ("algorithm", "keys", "signed_with"),
    [
        ("HS256", SECRET.encode() + b"\n", SECRET),
        ("RS256", pem(RSA), RSA),
        ("EdDSA", pem(ED), ED),
        ("RS256", jwks(jwk(RSA, None)), RSA),
        ("EdDSA", jwks(jwk(ED, None), jwk(RSA, None)), ED),
    ],
)
async def test_what_the_issuer_signed_counts(tmp_path: Path, algorithm: str, keys: bytes, signed_with: Any) -> None:
    issuer = Issuer(tmp_path, algorithm, keys)
    found = await issuer.verified(jwt.encode(issuer.claims(), signed_with, algorithm))

    assert found.subject == "ann"
    [grant] = found.grants
    assert (grant.verbs, grant.tenants, grant.queues) == ((Verb.PUSH, Verb.POP, Verb.READ), ("acme",), ("orders*",))
    assert found.expires_at == issuer.clock.now() // MICROS_PER_SECOND * MICROS_PER_SECOND + 70 * MICROS_PER_SECOND


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": ...}, {"exp": "soon"}, {"exp": True}, {"exp": 10**30}, {"exp": 1}, {"nbf": 10**10}, {"iat": 10**10},
        {"iss": ...}, {"iss": "https://issuer/"}, {"iss": ["https://issuer"]}, {"aud": ...}, {"aud": "other"}, {"aud": []},
        {"aud": {"skep": 1}}, {"sub": ...}, {"sub": ""}, {"sub": 7}, {"sub": "a\nb"}, {"sub": "a" * 201}, {"skep": ...},
        {"skep": "admin"}, {"skep": []}, {"skep": {}}, {"skep": {"role": "root"}}, {"skep": {"role": "admin", "x": 1}},
        {"skep": {"role": "admin", "queues": []}}, {"skep": [GRANTS, {}]},
    ],
)  # fmt: skip
async def test_a_claim_that_is_missing_or_wrong_refuses_it(issuer: Issuer, changed: dict[str, Any]) -> None:
    await issuer.refused(signed_by_hand({}, issuer.claims(**changed)))


async def test_it_counts_until_it_expires_with_some_leeway(issuer: Issuer) -> None:
    token = jwt.encode(
        issuer.claims(aud=["other", "skep"], nbf=issuer.clock.now() // MICROS_PER_SECOND + 9), RSA, "RS256"
    )
    await issuer.verified(token)
    issuer.clock.advance(69)
    await issuer.verified(token)
    issuer.clock.advance(2)
    assert "expired" in await issuer.refused(token)


async def test_an_algorithm_that_is_not_the_settings_never_counts(issuer: Issuer, tmp_path: Path) -> None:
    claims = json.dumps(issuer.claims()).encode()
    for header in (b'{"alg":"none"}', b'{"alg":"None"}', b'{"alg":""}', b"{}", b'{"alg":["RS256"]}', b'{"alg":null}'):
        await issuer.refused(b64(header) + b"." + b64(claims) + b".")
    # A public key is no secret, though anyone can use it as one.
    for header in (b'{"alg":"HS256"}', b'{"alg":"HS256","kid":"1"}'):
        body = b64(header) + b"." + b64(claims)
        await issuer.refused(body + b"." + b64(hmac.new(pem(RSA), body, hashlib.sha256).digest()))
    await issuer.refused(jwt.encode(issuer.claims(), RSA, "RS512"))
    await issuer.refused(jwt.encode(issuer.claims(), RSA, "PS256"))
    await issuer.refused(jwt.encode(issuer.claims(), ED, "EdDSA"))
    await issuer.refused(jwt.encode(issuer.claims(), ec.generate_private_key(ec.SECP256R1()), "ES256"))


async def test_a_forged_token_is_refused(issuer: Issuer) -> None:
    token = jwt.encode(issuer.claims(), RSA, "RS256")
    head, body, signature = token.split(".")
    more = b64(json.dumps(issuer.claims(skep={"role": "admin", "tenants": ["*"]})).encode()).decode()

    await issuer.refused(f"{head}.{more}.{signature}")
    await issuer.refused(f"{head}.{body}.")
    await issuer.refused(f"{head}.{body}")
    await issuer.refused(f"{head}.{body}.{signature[:-4]}AAAA")
    await issuer.refused(jwt.encode(issuer.claims(), OTHER_RSA, "RS256"))
    for text in ("", ".", "..", "a.b.c", "e30.e30.e30", "[]." + body + "." + signature):
        await issuer.refused(text)


async def test_a_token_cannot_bring_or_name_its_own_key(issuer: Issuer) -> None:
    public = jwk(OTHER_RSA, "x")
    for header in ({"jwk": public}, {"jku": "http://127.0.0.1:1/keys"}, {"x5u": "http://127.0.0.1:1/"}, {"x5c": ["a"]}):
        await issuer.refused(jwt.encode(issuer.claims(), OTHER_RSA, "RS256", headers=header))
    await issuer.refused(jwt.encode(issuer.claims(), RSA, "RS256", headers={"crit": ["exp"]}))
    for plain in (False, True):  # the library understands the second one
        await issuer.refused(signed_by_hand({"crit": ["b64"], "b64": plain}, issuer.claims()))


async def test_each_key_of_a_set_is_good_for_one_algorithm(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, "RS256,EdDSA", jwks(jwk(RSA, "r"), jwk(ED, "e"), jwk(OTHER_RSA, "old")))
    await issuer.verified(jwt.encode(issuer.claims(), RSA, "RS256", headers={"kid": "r"}))
    await issuer.verified(jwt.encode(issuer.claims(), ED, "EdDSA", headers={"kid": "e"}))

    await issuer.refused(jwt.encode(issuer.claims(), RSA, "RS256", headers={"kid": "e"}))
    head, body = (b64(json.dumps(part).encode()).decode() for part in ({"alg": "RS256", "kid": "e"}, issuer.claims()))
    await issuer.refused(f"{head}.{body}.{b64(ED.sign(f'{head}.{body}'.encode())).decode()}")
    await issuer.refused(jwt.encode(issuer.claims(), RSA, "RS256", headers={"kid": "old"}))
    await issuer.refused(jwt.encode(issuer.claims(), RSA, "RS256", headers={"kid": "nobody"}))
    await issuer.refused(jwt.encode(issuer.claims(), RSA, "RS256"))  # which of the two it would be is not said
    assert (await issuer.source.keys("e")).find("RS256", "e") is None  # whatever the library would make of it


def test_keys_that_are_weak_or_for_something_else_are_left_out() -> None:
    weak = rsa.generate_private_key(65537, 1024)
    sound = jwk(RSA, "sound")
    secret = {"kty": "oct", "k": b64(b"s" * 32).decode(), "kid": "secret", "alg": "RS256"}
    others = [
        jwk(weak, "weak"), jwk(OTHER_RSA, "enc", use="enc"), jwk(OTHER_RSA, "alg", alg="RS512"), secret, "text", None, 7,
        jwk(OTHER_RSA, "ops", key_ops=["encrypt"]), {"kty": "RSA", "kid": "broken"}, {"kty": {}, "kid": "odd"},
        jwk(OTHER_RSA, "odd ops", key_ops=7),
    ]  # fmt: skip
    assert list(read_keys(jwks(*others, sound), ("RS256",)).by_kid) == ["sound"]


@pytest.mark.parametrize(
    ("algorithms", "keys"),
    [
        ("none", b"x"), ("", b"x"), ("RS512", pem(RSA)), ("HS256,RS256", SECRET.encode()), ("HS256", b"short"),
        ("HS256", pem(RSA)), ("HS256", jwks(jwk(RSA, "r"))), ("RS256", SECRET.encode()), ("RS256", pem(ED)), ("EdDSA", pem(RSA)),
        ("RS256", jwks()), ("RS256", jwks(jwk(ED, "e"))), ("RS256", b'{"keys": 1}'), ("RS256", jwks(*[jwk(RSA, None)] * 101)),
        ("RS256", jwks(jwk(RSA, "a"), jwk(OTHER_RSA, "a"))), ("RS256", "http://example.com/keys"), ("HS256", "https://example.com/k"),
        ("RS256", "https://user:pass@example.com/keys"), ("RS256", "http://127.0.0.1.example.com/"), ("RS256", "/no/such/file"),
    ],
)  # fmt: skip
async def test_settings_that_cannot_be_are_refused_at_the_start(
    tmp_path: Path, algorithms: str, keys: bytes | str
) -> None:
    with pytest.raises(SkepError) as refused:
        await Issuer(tmp_path, algorithms, keys).source.start()
    assert refused.value.code == "INVALID_SETTING"


class Published:
    """An issuer that publishes its keys, and counts who asks."""

    def __init__(self) -> None:
        self.body: bytes = jwks(jwk(RSA, "one"))
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        published = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                published.asked += 1
                self.send_response(published.status)
                for name, value in {"Content-Length": str(len(published.body)), **published.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(published.body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Answering)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"


@pytest.fixture
def published() -> Iterator[Published]:
    published = Published()
    thread = threading.Thread(target=published.server.serve_forever, args=(0.01,))
    thread.start()
    yield published
    published.server.shutdown()
    thread.join()
    published.server.server_close()


async def test_keys_rotate_without_a_restart_and_the_old_one_counts_no_longer(
    tmp_path: Path, published: Published
) -> None:
    issuer = Issuer(tmp_path, "RS256", published.url)
    old = jwt.encode(
        issuer.claims(exp=issuer.clock.now() // MICROS_PER_SECOND + 7_200), RSA, "RS256", headers={"kid": "one"}
    )
    new = jwt.encode(
        issuer.claims(exp=issuer.clock.now() // MICROS_PER_SECOND + 7_200), OTHER_RSA, "RS256", headers={"kid": "two"}
    )
    await issuer.verified(old)
    changes: list[int] = []
    issuer.tokens.on_change(lambda: changes.append(1))

    published.body = jwks(jwk(OTHER_RSA, "two"))
    issuer.clock.advance(10)  # a kid that is not known makes it look, at most so often
    assert (await issuer.tokens.verified(new)).subject == "ann"
    assert changes == [1]
    with pytest.raises(SkepError, match="no key"):
        await issuer.tokens.verified(old)


async def test_made_up_kids_do_not_make_it_ask_again_and_again(tmp_path: Path, published: Published) -> None:
    issuer = Issuer(tmp_path, "RS256", published.url)
    await issuer.source.start()
    issuer.clock.advance(10)
    for number in range(50):
        with pytest.raises(SkepError):
            await issuer.tokens.verified(jwt.encode(issuer.claims(), RSA, "RS256", headers={"kid": f"x{number}"}))
    assert published.asked == 2


async def test_an_issuer_that_is_away_is_believed_for_a_while(tmp_path: Path, published: Published) -> None:
    issuer = Issuer(tmp_path, "RS256", published.url)
    token = jwt.encode(
        issuer.claims(exp=issuer.clock.now() // MICROS_PER_SECOND + 7_200), RSA, "RS256", headers={"kid": "one"}
    )
    await issuer.verified(token)
    published.status = 503

    issuer.clock.advance(300 + 3_590)
    await issuer.tokens.verified(token)
    issuer.clock.advance(20)
    with pytest.raises(SkepError, match="cannot be read"):
        await issuer.tokens.verified(token)
    published.status = 200
    issuer.clock.advance(10)
    await issuer.tokens.verified(token)


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (302, {"Location": "http://127.0.0.1:1/"}, b""), (500, {}, b"no"), (200, {}, b"x" * 300_000), (200, {}, b"no json"),
        (200, {}, b"[" * 100_000),
    ],
)  # fmt: skip
async def test_an_answer_that_is_no_set_of_keys_lets_nobody_in(
    tmp_path: Path, published: Published, status: int, headers: dict[str, str], body: bytes
) -> None:
    published.status, published.headers, published.body = status, headers, body
    issuer = Issuer(tmp_path, "RS256", published.url)
    await issuer.refused(jwt.encode(issuer.claims(), RSA, "RS256", headers={"kid": "one"}))


def test_a_token_does_over_the_wire_what_it_grants(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, "HS256", SECRET.encode())
    with running_server(clock=issuer.clock, access=issuer.settings) as server:
        door = Door(server, "acme")
        ann = door.with_token(jwt.encode(issuer.claims(), SECRET, "HS256"))
        assert (ann.push("orders", 1).status, ann.push("invoices", 1).status) == (201, 403)
        [message] = ann.pop("orders").json["messages"]
        assert message["headers"] == {"skep-producer": "jwt:ann"}
        ann.tenant = "default"
        assert ann.push("orders", 1).status == 403
        ann.tenant = None
        issuer.clock.advance(71)
        assert ann.push("orders", 1).status == 401
        assert door.with_token(None).push("orders", 1).status == 401
        door.close()


@pytest.mark.parametrize(
    ("issued", "expires", "counts"),
    [
        (0, 86_400, True),
        (0, 86_401, False),
        (-86_400, 1, False),
        (-86_399, 1, True),
        (..., 86_400, True),
        (..., 86_411, False),
        (..., 365 * 86_400, False),
    ],
)
async def test_a_token_that_counts_for_longer_than_allowed_is_refused(
    issuer: Issuer, issued: Any, expires: int, counts: bool
) -> None:
    """From when it was issued; one that does not say that may not end later than so long after now."""
    now = issuer.clock.now() // MICROS_PER_SECOND
    claims = issuer.claims(iat=issued if issued is ... else now + issued, exp=now + expires)
    token = jwt.encode(claims, RSA, "RS256")
    if counts:
        assert (await issuer.verified(token)).subject == "ann"
    else:
        assert "access.jwt_life_seconds" in await issuer.refused(token)
