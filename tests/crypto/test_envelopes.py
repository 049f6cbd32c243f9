"""Envelopes and master keys: what is sealed comes out as it was, and nothing else comes out at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.crypto.envelope import DataKey, Sealed, key_of
from skep.crypto.master import MasterKeys, data_key, new_master_line, new_secret
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import SEALED_TYPE, NewMessage, QueueKey

ORDERS = QueueKey("orders", "acme")
KEY = DataKey(Id(b"k" * 16), ORDERS, b"s" * 32)


ID, TRACE = Id(b"i" * 16), Id(b"t" * 16)


def message(payload: bytes = b'{"total":99.5}', partition: str = "c-1", content_type: str | None = None) -> Sealed:
    return Sealed(payload, content_type, ID, TRACE, partition)


def seal(key: DataKey, *messages: Sealed) -> list[bytes]:
    given = [NewMessage(ORDERS, m.payload, m.partition, None, TRACE, None, m.content_type) for m in messages]
    sealed = key.seal(given, [ID] * len(given))
    assert all(m.content_type == SEALED_TYPE for m in sealed)
    return [m.payload for m in sealed]


def refusal(key: DataKey, envelope: bytes) -> Code:
    with pytest.raises(SkepError) as refused:
        key.open(envelope)
    return refused.value.code


@given(st.binary(max_size=2_000), st.text(min_size=1, max_size=255), st.none() | st.text(max_size=300))
def test_what_is_sealed_comes_out_as_it_was(payload: bytes, partition: str, content_type: str | None) -> None:
    one = message(payload, partition, content_type)
    [envelope] = seal(KEY, one)
    assert KEY.open(envelope) == one
    assert key_of(envelope) == KEY.id


def test_nothing_of_the_payload_is_to_be_seen() -> None:
    [envelope] = seal(KEY, message(b'{"card":"4242424242424242"}', "customer-17"))
    for secret in (b"4242", b"card", b"customer-17"):
        assert secret not in envelope


def test_a_changed_byte_anywhere_is_noticed() -> None:
    [envelope] = seal(KEY, message())
    for place in range(17, len(envelope)):  # before that stands which key it is, which finds another or none
        changed = bytearray(envelope)
        changed[place] ^= 1
        assert refusal(KEY, bytes(changed)) is Code.CANNOT_DECRYPT


def test_an_envelope_that_was_cut_short_is_noticed() -> None:
    [envelope] = seal(KEY, message())
    for length in range(len(envelope)):
        assert refusal(KEY, envelope[:length]) is Code.CANNOT_DECRYPT


def test_what_is_no_envelope_names_no_key() -> None:
    for text in (b"", b"{}", b"\x02" + b"x" * 60):
        with pytest.raises(SkepError) as refused:
            key_of(text)
        assert refused.value.code is Code.CANNOT_DECRYPT


def test_another_queue_cannot_open_it_even_with_the_same_secret() -> None:
    [envelope] = seal(KEY, message())
    for queue in (QueueKey("orders", "other"), QueueKey("invoices", "acme"), QueueKey("eorders", "acm")):
        assert refusal(DataKey(KEY.id, queue, b"s" * 32), envelope) is Code.CANNOT_DECRYPT


def test_a_wrong_key_opens_nothing() -> None:
    [envelope] = seal(KEY, message())
    assert refusal(DataKey(KEY.id, ORDERS, b"x" * 32), envelope) is Code.CANNOT_DECRYPT


def test_no_nonce_comes_twice() -> None:
    envelopes = seal(KEY, *[message()] * 20_000) + seal(KEY, *[message()] * 20_000)
    assert len({envelope[17:29] for envelope in envelopes}) == 40_000


def test_a_data_key_comes_out_of_its_wrapping() -> None:
    masters = MasterKeys(new_master_line("2026"))
    secret = new_secret()
    wrapped = masters.wrap(KEY.id, ORDERS, secret)
    assert secret not in wrapped
    [envelope] = seal(data_key(masters, "2026", KEY.id, ORDERS, wrapped), message())
    assert DataKey(KEY.id, ORDERS, secret).open(envelope) == message()


def test_a_wrapped_key_is_of_no_use_to_another_queue_or_master() -> None:
    masters = MasterKeys(f"{new_master_line('new')}\n{new_master_line('old')}")
    wrapped = masters.wrap(KEY.id, ORDERS, new_secret())
    for name, id_, queue in (
        ("new", KEY.id, QueueKey("invoices", "acme")),
        ("new", Id(b"z" * 16), ORDERS),
        ("old", KEY.id, ORDERS),
        ("gone", KEY.id, ORDERS),
    ):
        with pytest.raises(SkepError) as refused:
            masters.unwrap(name, id_, queue, wrapped)
        assert refused.value.code is Code.KEY_UNAVAILABLE


def test_the_first_master_key_is_the_current_one() -> None:
    text = f"# made in january\n\n{new_master_line('new')}\n{new_master_line('old')}\n"
    masters = MasterKeys(text)
    assert masters.current == "new"
    assert masters.names == {"new", "old"}


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "secretsecret", "a:notbase64!", "a:c2hvcnQ=", ":" + "A" * 44, "a b:" + "A" * 43 + "="],
    ids=["empty", "comment", "no name", "no base64", "short", "unnamed", "bad name"],
)
def test_what_is_no_master_key_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SkepError) as refused:
        MasterKeys(text)
    assert refused.value.code is Code.INVALID_SETTING
    assert "secretsecret" not in str(refused.value)


def test_one_name_for_two_master_keys_is_refused() -> None:
    with pytest.raises(SkepError, match="second time"):
        MasterKeys(f"{new_master_line('a')}\n{new_master_line('a')}")
