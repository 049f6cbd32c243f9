"""Deliveries over real sockets: signature, answers, redirects, time limits, and addresses that may not be connected to."""

from __future__ import annotations

import base64
import shutil
import ssl
import subprocess
import time
from email.utils import formatdate
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks.webhooks import Webhook

from skep.clock import ManualClock, SystemClock, seconds
from skep.errors import Code, SkepError
from skep.runtime.loop import run
from skep.spec.endpoint import endpoint_name
from skep.spec.ir import Deliver
from skep.spec.standard_keys import new_pair
from skep.worker.addresses import address_of, is_public
from skep.worker.delivery import Deliverer, Result
from tests.worker.receiver import OK, answer, receiver

ID = "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d"
SECRETS = {
    "NEW": "whsec_" + base64.b64encode(b"a new secret, 24 bytes..").decode(),
    "OLD": base64.b64encode(b"an old one, which is longer").decode().rstrip("="),
}


def deliverer(url: str, timeout_seconds: float = 20, **more: object) -> Deliverer:
    spec = Deliver(url=url, headers={"X-Shop": "main"}, secret_env=["NEW", "OLD"], timeout_seconds=timeout_seconds)
    return Deliverer(spec, SECRETS, SystemClock(), allow_private=True, **more)  # type: ignore[arg-type] # given by tests


async def test_a_delivery_is_signed_so_that_either_secret_verifies_it() -> None:
    body = '{"text": "Zoë"}'.encode()
    async with receiver() as there:
        outcome = await deliverer(there.url).deliver(ID, body)
    assert outcome.result is Result.DELIVERED
    (got,) = there.received
    assert got.line == "POST /hook?x=1 HTTP/1.1"
    assert got.body == body
    assert got.headers["host"] == f"127.0.0.1:{there.port}"
    assert (got.headers["x-shop"], got.headers["content-type"]) == ("main", "application/json")
    assert got.headers["webhook-id"] == ID
    for secret in SECRETS.values():
        Webhook(secret).verify(got.body, got.headers)


async def test_a_delivery_is_signed_by_secrets_and_by_keys_in_one_header() -> None:
    (first, public), (second, other) = new_pair(), new_pair()
    environment = {"KEY": first, "NEXT": second, "SECRET": SECRETS["NEW"]}
    spec = Deliver(url="http://127.0.0.1/", secret_env=["KEY", "SECRET", "NEXT"])
    async with receiver() as there:
        one = Deliverer(msgspec.structs.replace(spec, url=there.url), environment, SystemClock(), allow_private=True)
        assert (await one.deliver(ID, b'{"a": 1}')).result is Result.DELIVERED
    (got,) = there.received
    signatures = got.headers["webhook-signature"].split()
    assert [signature.partition(",")[0] for signature in signatures] == ["v1a", "v1", "v1a"]
    Webhook(SECRETS["NEW"]).verify(got.body, got.headers)
    signed = f"{ID}.{got.headers['webhook-timestamp']}.".encode() + got.body
    for key, signature in ((public, signatures[0]), (other, signatures[2])):
        verifier = Ed25519PublicKey.from_public_bytes(base64.b64decode(key.removeprefix("whpk_")))
        verifier.verify(base64.b64decode(signature.removeprefix("v1a,")), signed)


async def test_bytes_that_are_no_text_are_signed_as_they_are() -> None:
    async with receiver() as there:
        assert (await deliverer(there.url).deliver(ID, b"\xff\xfe", "image/png")).result is Result.DELIVERED
    assert (there.received[0].body, there.received[0].headers["content-type"]) == (b"\xff\xfe", "image/png")


async def test_a_password_is_sent_and_never_told_and_headers_of_the_request_are_its_own() -> None:
    async with receiver() as there:
        there.answers = [answer(500)]
        spec = Deliver(
            url=f"http://ann:p%40ss@127.0.0.1:{there.port}/in",
            headers={"Host": "evil", "Content-Length": "1", "X-A": "b"},
        )
        one = Deliverer(spec, {}, SystemClock(), allow_private=True)
        outcome = await one.deliver(ID, b"{}")
    [got] = there.received
    assert got.headers["authorization"] == "Basic " + base64.b64encode(b"ann:p@ss").decode()
    assert (got.headers["host"], got.headers["content-length"], got.headers["x-a"]) == (
        f"127.0.0.1:{there.port}",
        "2",
        "b",
    )
    assert one.url == f"http://127.0.0.1:{there.port}/…86121fea"
    assert "p%40ss" not in outcome.reason


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, Result.DELIVERED), (299, Result.DELIVERED), (301, Result.REFUSED), (307, Result.REFUSED), (400, Result.REFUSED),
        (404, Result.REFUSED), (408, Result.FAILED), (410, Result.GONE), (422, Result.REFUSED), (429, Result.FAILED),
        (500, Result.FAILED), (503, Result.FAILED),
    ],
)  # fmt: skip
async def test_an_answer_means(status: int, result: Result) -> None:
    async with receiver() as there:
        there.answers = [answer(status, "so it is", location=there.url)]
        outcome = await deliverer(there.url).deliver(ID, b"{}")
    assert outcome.result is result
    assert len(there.received) == 1  # a redirect is not followed
    if result is not Result.DELIVERED:
        assert f"answered {status}: so it is" in outcome.reason


async def test_retry_after_is_seconds_or_a_date_within_bounds() -> None:
    clock = ManualClock()
    async with receiver() as there:
        one = Deliverer(Deliver(url=there.url), {}, clock, allow_private=True)
        soon = formatdate(clock.now() / 1_000_000 + 90, usegmt=True)
        past = formatdate(clock.now() / 1_000_000 - 90, usegmt=True)
        waits = {"120": 120.0, soon: 90.0, past: 0.0, "999999999999999": 7 * 86_400.0, "tomorrow": None, "-5": None}
        for text, wait in waits.items():
            there.answers = [answer(503, retry_after=text)]
            at = (await one.deliver(ID, b"{}")).retry_at
            assert at == (None if wait is None else clock.now() + seconds(wait)), text


async def test_retry_after_is_in_utc_also_in_the_old_form_of_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    soon = time.asctime(time.gmtime(clock.now() / 1_000_000 + 90))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        async with receiver() as there:
            there.answers = [answer(503, retry_after=soon)]
            one = Deliverer(Deliver(url=there.url), {}, clock, allow_private=True)
            assert (await one.deliver(ID, b"{}")).retry_at == clock.now() + seconds(90.0)
    finally:
        monkeypatch.undo()
        time.tzset()


async def test_no_answer_in_time_and_no_connection_are_failures() -> None:
    async with receiver() as there:
        there.answers = [None]
        begun = time.monotonic()
        outcome = await deliverer(there.url, 0.3).deliver(ID, b"{}")
        assert outcome.result is Result.FAILED
        assert "within 0.3 s" in outcome.reason
        assert time.monotonic() - begun < 5
    gone = await deliverer(there.url).deliver(ID, b"{}")
    assert gone.result is Result.FAILED
    assert "Connect" in gone.reason


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    ],
)
async def test_what_is_no_answer_is_a_failure(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with receiver() as there:
        there.answers = [said]
        assert (await deliverer(there.url).deliver(ID, b"{}")).result is Result.FAILED
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(("status", "result"), [(200, Result.DELIVERED), (410, Result.GONE), (429, Result.FAILED)])
async def test_a_status_counts_though_the_body_of_its_answer_never_ends(status: int, result: Result) -> None:
    async with receiver() as there:
        there.hangs_up = False
        there.answers = [f"HTTP/1.1 {status} X\r\nRetry-After: 90\r\nContent-Length: 99\r\n\r\nso it".encode()]
        outcome = await deliverer(there.url).deliver(ID, b"{}")
    assert outcome.result is result
    if result is not Result.DELIVERED:
        assert outcome.reason.endswith(f"answered {status}: so it")
    assert (outcome.retry_at is not None) is (status == 429)


async def test_an_early_hint_is_not_the_answer_and_an_endless_body_is_not_read() -> None:
    async with receiver() as there:
        there.answers = [
            b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"
            + b"x" * 200_000
        ]
        assert (await deliverer(there.url).deliver(ID, b"{}")).result is Result.DELIVERED


async def test_an_answer_is_heard_before_a_large_message_was_read() -> None:
    async with receiver() as there:
        there.reads_body = False
        there.answers = [answer(413, "too large")]
        assert (await deliverer(there.url).deliver(ID, b"x" * 3_000_000)).result is Result.REFUSED


def test_deliveries_work_on_the_event_loop_that_workers_run_on() -> None:
    async def main() -> list[Result]:
        async with receiver() as there:
            one = deliverer(there.url)
            there.answers = [OK, answer(503), b"", answer(413)]
            found = [(await one.deliver(ID, b"{}")).result for _ in range(3)]
            there.reads_body = False
            return [*found, (await one.deliver(ID, b"x" * 3_000_000)).result]

    assert run(main()) == [Result.DELIVERED, Result.FAILED, Result.FAILED, Result.REFUSED]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "0.0.0.0", "0.1.2.3",
        "100.64.0.1", "192.88.99.1", "224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "192.0.2.1", "198.18.0.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "fec0::1", "2001:db8::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::",
        "2001:0:a00:1::", "3fff::1", "5f00::1", "2606:4700::5efe:a00:1", "2606:4700::200:5efe:7f00:1", "not an address", "",
    ],
)  # fmt: skip
def test_an_address_that_leads_inside_is_not_public(address: str) -> None:
    assert not is_public(address)


PLATFORM = [
    "169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254",
    "fd00:42::42", "fd00:c1::a9fe:a9fe", "fe80::a9fe:a9fe", "fe80::a9fe:a9fe%eth0", "::ffff:168.63.129.16", "::ffff:169.254.169.254",
    "64:ff9b::a83f:8110", "2002:a83f:8110::", "::169.254.169.254", "2606:4700::5efe:a83f:8110",
]  # fmt: skip


@pytest.mark.parametrize("address", PLATFORM)
async def test_where_a_cloud_platform_answers_nothing_is_delivered_even_if_private_addresses_are_allowed(
    address: str,
) -> None:
    async def resolve(_: str, __: int) -> list[str]:
        return [address]

    assert not is_public(address)
    for allow_private in (False, True):
        with pytest.raises(SkepError, match="cloud platform"):
            await address_of("metadata.example.com", 80, resolve, allow_private=allow_private)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
)
def test_an_address_of_the_public_network_is(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:127.0.0.1]"]
)
async def test_an_own_address_is_refused_however_it_is_written(host: str) -> None:
    async with receiver() as there:
        one = Deliverer(Deliver(url=f"http://{host}:{there.port}/"), {}, SystemClock())
        outcome = await one.deliver(ID, b"{}")
    assert outcome.result is Result.FAILED
    assert "no public address" in outcome.reason
    assert there.received == []


async def test_a_public_name_that_points_inside_is_refused_on_every_try() -> None:
    answers = [["93.184.216.34", "127.0.0.1"], ["127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"]]
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(f"{host}:{port}")
        return answers[len(asked)]

    async with receiver() as there:
        one = Deliverer(Deliver(url=f"http://hooks.example.com:{there.port}/"), {}, SystemClock(), resolve=rebinding)
        for tries in range(1, 4):
            outcome = await one.deliver(ID, b"{}")
            assert outcome.result is Result.FAILED
            assert "no public address" in outcome.reason
            assert asked == [f"hooks.example.com:{there.port}"] * tries
    assert there.received == []


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for hooks.example.com, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    made, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hooks.example.com",
         "-addext", "subjectAltName=DNS:hooks.example.com", "-keyout", key, "-out", made],
        check=True, capture_output=True,
    )  # fmt: skip
    return made, key


async def test_the_connection_goes_to_the_address_that_was_looked_at_under_its_name(
    certificate: tuple[Path, Path],
) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))

    async def resolve(_host: str, _port: int) -> list[str]:
        return ["127.0.0.1"]

    async with receiver(theirs) as there:
        for host, context, result in [
            ("hooks.example.com", trusting, Result.DELIVERED),
            ("other.example.com", trusting, Result.FAILED),
            ("hooks.example.com", None, Result.FAILED),
        ]:
            one = deliverer(f"https://{host}:{there.port}/in", resolve=resolve, context=context)
            assert (await one.deliver(ID, b"{}")).result is result
    assert [got.headers["host"] for got in there.received] == [f"hooks.example.com:{there.port}"]


def test_a_secret_that_is_no_base64_is_refused_at_the_start() -> None:
    with pytest.raises(SkepError) as caught:
        Deliverer(Deliver(url="https://a.example/", secret_env=["NEW"]), {"NEW": "é"}, SystemClock())
    assert caught.value.code is Code.INVALID_SETTING
    assert "NEW" in caught.value.message


async def test_a_path_is_sent_and_never_told() -> None:
    async with receiver() as there:
        there.answers = [answer(500)]
        url = f"http://127.0.0.1:{there.port}/services/T0001/s3cret?key=s3cret"
        one = Deliverer(Deliver(url=url), {}, SystemClock(), allow_private=True)
        outcome = await one.deliver(ID, b"{}")
    assert there.received[0].line == "POST /services/T0001/s3cret?key=s3cret HTTP/1.1"
    assert f"127.0.0.1:{there.port}" in outcome.reason
    assert "s3cret" not in outcome.reason + one.url


def test_an_endpoint_has_a_name_of_its_own_that_tells_the_host_alone() -> None:
    slack = endpoint_name("https://hooks.slack.com/services/T1/B1/x")
    assert slack.startswith("https://hooks.slack.com/…")
    assert endpoint_name(slack) == slack
    assert slack != endpoint_name("https://hooks.slack.com/services/T1/B1/y")
    assert endpoint_name("https://ann:s3cret@a.example") == "https://a.example/"
    assert endpoint_name("https://a.example?key=s3cret") == endpoint_name("https://b:c@a.example/?key=s3cret")
    assert "s3cret" not in endpoint_name("https://a.example?key=s3cret")


async def test_address_and_headers_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    async with receiver() as there:
        file = tmp_path / "token"
        file.write_text("Bearer s3cret\n")
        spec = Deliver(url_env="ADDRESS", headers={"X-Shop": "main"}, headers_env={"Authorization": "TOKEN"})
        environment = {"ADDRESS": there.url, "TOKEN_FILE": str(file)}
        one = Deliverer(spec, environment, SystemClock(), allow_private=True)
        assert (await one.deliver(ID, b"{}")).result is Result.DELIVERED
    [got] = there.received
    assert (got.headers["authorization"], got.headers["x-shop"]) == ("Bearer s3cret", "main")


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, "the environment has neither ADDRESS nor ADDRESS_FILE"),
        ({"ADDRESS": "s3cret"}, "what ADDRESS holds is not an address"),
        ({"ADDRESS": "https://a.example/"}, "the environment has neither TOKEN nor TOKEN_FILE"),
        ({"ADDRESS": "https://a.example/", "TOKEN": "s3cret\r\nX: y"}, "what TOKEN holds cannot be a header's value"),
        ({"ADDRESS": "https://a.example/", "TOKEN_FILE": "/nowhere"}, "the file of TOKEN_FILE cannot be read"),
        ({"ADDRESS": "https://a.example/", "TOKEN": "a", "KEY": "c2hvcnQ="}, "the secret in KEY has 5 bytes"),
        ({"ADDRESS": "https://a.example/", "TOKEN": "a", "KEY": "whpk_c2hvcnQ="}, "KEY holds a public key"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused_at_the_start_and_not_told(
    environment: dict[str, str], told: str
) -> None:
    spec = Deliver(
        url_env="ADDRESS", headers_env={"Authorization": "TOKEN"}, secret_env=["KEY"] if "KEY" in environment else []
    )
    with pytest.raises(SkepError, match=told) as caught:
        Deliverer(spec, environment, SystemClock())
    assert caught.value.code is Code.INVALID_SETTING
    assert "s3cret" not in str(caught.value)
