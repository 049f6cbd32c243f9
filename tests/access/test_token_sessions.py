"""Sessions of tokens, and tokens that were let in before: they end when the key that signed them is trusted no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import jwt
import msgspec
import pytest

from skep.access import keysets
from skep.access.gate import Gate
from skep.access.keysets import KeySource
from skep.access.principal import Principal
from skep.access.tokens import Tokens
from skep.clock import MICROS_PER_SECOND
from skep.config import AccessSettings
from skep.engine.access import Access
from skep.engine.inflight import InFlight
from skep.errors import Code, SkepError
from skep.model.key import SessionDetail
from tests.access.test_tokens import OTHER_RSA, RSA, SECRET, Issuer, Published, jwk, jwks, published
from tests.engine.driver import until
from tests.support.reference_store import ReferenceStore

__all__ = ["published"]  # a fixture


class Entrance:
    """A server's gate, with the keys of an issuer that a test changes."""

    def __init__(self, folder: Path, keys: bytes | str | None = None, algorithm: str = "RS256") -> None:
        self.issuer = Issuer(folder, algorithm, keys or jwks(jwk(RSA, "one"), jwk(OTHER_RSA, "two")))
        self.clock = self.issuer.clock
        self.store = ReferenceStore()
        self.gate = self.another(self.issuer.settings)
        self._place = folder / "keys"

    def another(self, settings: AccessSettings, has_tokens: bool = True) -> Gate:
        """The gate of another server of the same store."""
        access = Access(self.store.access, self.clock, InFlight())
        tokens = Tokens(settings, self.clock, KeySource(settings, self.clock)) if has_tokens else None
        return Gate(access, self.clock, settings, tokens)

    def token(
        self, key: object = RSA, kid: str | None = "one", algorithm: str = "RS256", *, lasts: int = 80_000
    ) -> bytes:
        claims = self.issuer.claims(exp=self.clock.now() // MICROS_PER_SECOND + lasts)
        headers = None if kid is None else {"kid": kid}
        return jwt.encode(claims, key, algorithm, headers=headers).encode()  # type: ignore[arg-type] # any key

    async def session(self, token: bytes) -> bytes:
        return (await self.gate.sessions.open(await self.gate.admit(token))).encode()

    def publish(self, *keys: object) -> None:
        self._place.write_bytes(jwks(*keys))


async def refused(admitted: Awaitable[Principal]) -> str:
    with pytest.raises(SkepError) as refused:
        await admitted
    assert refused.value.code is Code.UNAUTHENTICATED
    return refused.value.message


@pytest.fixture
def entrance(tmp_path: Path) -> Entrance:
    return Entrance(tmp_path)


async def test_a_session_and_its_token_end_when_the_signing_key_leaves_the_set(entrance: Entrance) -> None:
    gate, token, other_token = entrance.gate, entrance.token(), entrance.token(OTHER_RSA, "two")
    session, other = await entrance.session(token), await entrance.session(other_token)
    waiting = [await gate.sessions.admit(session), await gate.admit(token)]
    await gate.sessions.admit(other)

    entrance.publish(jwk(OTHER_RSA, "two"))
    entrance.clock.advance(299)
    assert gate.sessions.remembered(session) is not None, "the keys are believed for so long"
    entrance.clock.advance(1)
    gate.sessions.remembered(session)  # it is time to read them anew
    await asyncio.wait_for(asyncio.gather(*(one.over() for one in waiting)), 10)

    assert (gate.remembered(token), gate.sessions.remembered(session)) == (None, None)
    assert "session has ended" in await refused(gate.sessions.admit(session))
    await refused(gate.admit(token))
    assert (await gate.sessions.admit(other)).name == "jwt:ann"
    await gate.admit(other_token)


async def test_a_session_ends_with_its_token_at_the_latest(entrance: Entrance) -> None:
    session = await entrance.session(entrance.token(lasts=60))

    entrance.clock.advance(69)  # with the leeway of ten seconds
    assert (await entrance.gate.sessions.admit(session)).name == "jwt:ann"
    entrance.clock.advance(1)
    await refused(entrance.gate.sessions.admit(session))


async def test_a_secret_that_was_replaced_ends_its_sessions(tmp_path: Path) -> None:
    entrance = Entrance(tmp_path, SECRET.encode(), "HS256")
    token = entrance.token(SECRET, None, "HS256")
    session = await entrance.session(token)
    (tmp_path / "keys").write_bytes(b"t" * 32)
    entrance.clock.advance(300)
    gate = entrance.gate

    gate.remembered(token)  # a token that was let in before lets them be read anew, too
    await until(lambda: gate.remembered(token) is None)

    await refused(gate.sessions.admit(session))
    [stored] = entrance.store.access.sessions.values()
    assert SECRET.encode() not in stored.document


async def test_nobody_who_was_let_in_before_waits_while_keys_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = asyncio.Event(), 0

    async def fetch(url: str) -> bytes:
        nonlocal asked
        asked += 1
        if asked > 1:
            await answer.wait()
            return jwks(jwk(OTHER_RSA, "two"))
        return jwks(jwk(RSA, "one"))

    monkeypatch.setattr(keysets, "fetch", fetch)
    entrance = Entrance(tmp_path, "https://issuer.example/keys")
    gate, token = entrance.gate, entrance.token()
    session = await entrance.session(token)
    await gate.sessions.admit(session)
    entrance.clock.advance(300)

    for _ in range(20):
        assert (gate.remembered(token) is None, gate.sessions.remembered(session) is None) == (False, False)
        await asyncio.sleep(0)
    assert asked == 2
    answer.set()

    await until(lambda: gate.sessions.remembered(session) is None)
    assert gate.remembered(token) is None


async def test_after_a_long_silence_keys_are_read_before_anybody_is_let_in(entrance: Entrance) -> None:
    gate, token = entrance.gate, entrance.token()
    session = await entrance.session(token)
    await gate.sessions.admit(session)
    entrance.publish(jwk(OTHER_RSA, "two"))
    entrance.clock.advance(600)

    assert (gate.remembered(token), gate.sessions.remembered(session)) == (None, None)
    await refused(gate.sessions.admit(session))
    await refused(gate.admit(token))


async def test_an_issuer_that_is_away_is_believed_for_a_while_by_sessions_too(
    tmp_path: Path, published: Published
) -> None:
    entrance = Entrance(tmp_path, published.url)
    entrance.gate = entrance.another(
        msgspec.structs.replace(entrance.issuer.settings, session_idle_seconds=80_000, session_seconds=80_000)
    )
    session = await entrance.session(entrance.token())
    published.status = 503

    for _ in range(3):
        entrance.clock.advance(1_290)
        await entrance.gate.sessions.admit(session)
    entrance.clock.advance(40)
    await refused(entrance.gate.sessions.admit(session))
    published.status = 200
    entrance.clock.advance(10)
    await entrance.gate.sessions.admit(session)


async def test_sessions_of_tokens_count_for_nothing_where_tokens_are_off_or_of_another_issuer(
    entrance: Entrance,
) -> None:
    session = await entrance.session(entrance.token())
    settings = entrance.issuer.settings

    assert (await entrance.another(settings).sessions.admit(session)).name == "jwt:ann"
    off = entrance.another(AccessSettings(required=True), has_tokens=False)
    await refused(off.sessions.admit(session))
    elsewhere = entrance.another(msgspec.structs.replace(settings, jwt_issuer="https://other"))
    await refused(elsewhere.sessions.admit(session))


async def test_a_session_stored_without_its_signer_counts_for_nothing(entrance: Entrance) -> None:
    session = await entrance.session(entrance.token())
    sessions = entrance.store.access.sessions
    [stored] = sessions.values()
    grants = msgspec.json.decode(stored.document, type=SessionDetail).grants
    before = msgspec.json.encode({"grants": grants})
    sessions[stored.id] = msgspec.structs.replace(stored, document=before)

    await refused(entrance.gate.sessions.admit(session))


async def test_a_server_that_does_not_know_a_sessions_key_yet_reads_the_keys_anew(entrance: Entrance) -> None:
    entrance.publish(jwk(RSA, "one"))
    late = entrance.another(entrance.issuer.settings)
    await late.admit(entrance.token())
    entrance.publish(jwk(RSA, "one"), jwk(OTHER_RSA, "two"))
    entrance.clock.advance(10)
    session = await entrance.session(entrance.token(OTHER_RSA, "two"))

    assert (await late.sessions.admit(session)).name == "jwt:ann"
