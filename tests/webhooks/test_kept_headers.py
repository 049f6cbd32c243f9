"""A webhook's message keeps the headers that are harmless, those that its spec names, or all that are not secret."""

from __future__ import annotations

import pytest

from skep.spec import check
from skep.spec.kept_headers import BY_NAME_OR_ALL, HEADERS_BYTES_MAX, HEADERS_MAX, NEVER, KeptHeaders, Reason
from skep.webhooks.request import kept_headers
from tests.webhooks.driver import SIGNED, Sender

SECRET_ONES = {
    "Authorization": "Bearer abc", "Proxy-Authorization": "Basic abc", "Cookie": "a=b", "X-Signature": "ff",
    "X-Hub-Signature-256": "sha256=ff", "X-Shopify-Hmac-Sha256": "ff", "X-Gitlab-Token": "abc", "X-Api-Key": "abc",
    "X_Api_Key": "abc", "X-Amz-Security-Token": "abc", "Cf-Access-Jwt-Assertion": "abc", "Skep-Producer": "me",
}  # fmt: skip
ADDRESSES = {"X-Forwarded-For": "10.0.0.1", "Forwarded": "for=10.0.0.1", "X-Real-Ip": "10.0.0.1", "Via": "1.1 proxy"}
HARMLESS = {"X-GitHub-Event": "push", "User-Agent": "GitHub-Hookshot", "Idempotency-Key": "k-1", "Svix-Id": "msg_1"}
APP = f"""
app Kept {{
  queue Whole {{}}
  queue Mapped {{ message_type {{ kind: string }} }}
  webhook Usual {{ queue: Whole, {SIGNED} }}
  webhook All {{ queue: Whole, {SIGNED}, keep_headers: ["*"] }}
  webhook AllAndOne {{ queue: Whole, {SIGNED}, keep_headers: ["*", "X-Gitlab-Token"] }}
  webhook None {{ queue: Whole, {SIGNED}, keep_headers: [] }}
  webhook Some {{ queue: Whole, {SIGNED}, keep_headers: ["X-GitHub-Event", "x-forwarded-for", "Authorization"] }}
  webhook Message {{ queue: Mapped, {SIGNED}, message {{ kind: headers["x-github-event"] }} }}
}}
"""


@pytest.fixture
def kept(sender: Sender) -> Sender:
    sender.apply(APP)
    return sender


def sent(sender: Sender, webhook: str) -> dict[str, str]:
    """The headers that the message of a request with all of them has."""
    everything = {**SECRET_ONES, **ADDRESSES, **HARMLESS}
    del everything["X-Signature"]
    reply = sender.signed(webhook, {"to": webhook}, **everything)
    assert reply.status == 202, reply
    [message] = sender.stored("Whole")
    found: dict[str, str] = message["headers"]
    return found


def small(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def test_the_harmless_headers_are_kept_by_default(kept: Sender) -> None:
    assert sent(kept, "Usual") == small(HARMLESS)


def test_all_are_kept_when_asked_for_but_the_secret_ones(kept: Sender) -> None:
    found = sent(kept, "All")

    assert found.items() >= small({**HARMLESS, **ADDRESSES}).items()
    assert "host" in found
    assert not found.keys() & small(SECRET_ONES).keys()


def test_one_that_may_be_secret_is_kept_when_it_is_named_beside_all(kept: Sender) -> None:
    found = sent(kept, "AllAndOne")

    assert found.keys() & small(SECRET_ONES).keys() == {"x-gitlab-token"}


def test_none_are_kept_when_none_are_asked_for(kept: Sender) -> None:
    assert sent(kept, "None") == {}


def test_those_that_are_named_are_kept_and_credentials_never_are(kept: Sender) -> None:
    assert sent(kept, "Some") == {"x-github-event": "push", "x-forwarded-for": "10.0.0.1"}


def test_a_message_of_expressions_has_the_harmless_headers_as_its_own(kept: Sender) -> None:
    assert kept.signed("Message", {}, X_GitHub_Event="push", Cookie="a=b").status == 202

    [message] = kept.api.pop("Mapped")
    assert message["payload"] == {"kind": "push"}
    assert message["headers"]["x-github-event"] == "push"
    assert not {"cookie", "x-signature", "host"} & message["headers"].keys()


def test_a_flood_of_headers_is_kept_within_bounds() -> None:
    many = [(b"x-%d" % number, b"v") for number in range(1_000)]
    assert len(kept_headers(KeptHeaders(["*"]), many)) == HEADERS_MAX
    large = [(b"x-large", b"v" * HEADERS_BYTES_MAX), (b"x-small", b"v"), *[(b"x-same", b"v" * 100)] * 1_000]
    found = kept_headers(KeptHeaders(None), large)
    assert found.keys() == {"x-small", "x-same"}
    assert sum(len(name) + len(value) for name, value in found.items()) <= HEADERS_BYTES_MAX * 1.1


def test_a_flood_of_headers_is_no_reason_to_refuse_a_request(kept: Sender) -> None:
    flood = {f"X-{number}": "é".encode("latin-1").decode("latin-1") * 400 for number in range(40)}

    assert kept.signed("Message", {}, X_GitHub_Event="push", **flood).status == 202
    assert kept.signed("All", {}, **flood).status == 202


def warnings(webhook: str) -> list[tuple[int, int, str, str | None]]:
    text = f'app A {{\n  queue Q {{}}\n  webhook W {{\n    queue: Q\n    verify_hmac {{ header: "X-Signature", secret_env: "S" }}\n{webhook}\n  }}\n}}\n'
    checked = check(text, "a.skep")
    assert checked.usable, checked.rendered
    return [(problem.line, problem.column, problem.message, problem.expected) for problem in checked.problems]


@pytest.mark.parametrize("name", ["Authorization", "cookie", "X-Signature", "Stripe-Signature", "skep-producer"])
def test_check_warns_of_a_name_that_never_comes(name: str) -> None:
    [(line, _, message, _)] = warnings(f'    keep_headers: ["x-kind", "{name}"]')

    assert line == 6
    assert f"{name!r} is never kept" in message


def test_check_warns_of_a_name_that_may_be_secret() -> None:
    [(_, _, message, _)] = warnings('    keep_headers: ["X-Gitlab-Token"]')
    assert "may hold a secret" in message


@pytest.mark.parametrize("names", ['["*"]', "[]", '["x-kind", "*"]', '["x-forwarded-for", "host"]'])
def test_check_takes_all_none_and_some(names: str) -> None:
    assert warnings(f"    keep_headers: {names}") == []


@pytest.mark.parametrize(
    ("keep", "expression", "column", "told", "expected"),
    [
        ('keep_headers: ["x-a"]', 'headers["x-b"]', 35, "'x-b' is not kept: keep_headers", '"x-b" in keep_headers'),
        ("keep_headers: []", 'headers["x-b"]', 35, "'x-b' is not kept: keep_headers", '"x-b" in keep_headers'),
        ("", 'headers["X-Kind"]', 35, "small letters", 'headers["x-kind"]'),
        ("", 'headers["x-api-key"]', 35, "may hold a secret", '"x-api-key" in keep_headers'),
        ('keep_headers: ["*"]', 'headers["x-signature"]', 35, "is a signature", "another header, or a field of the payload"),
        ('keep_headers: ["x-a"]', '"x-b" in headers ? headers["x-a"] : "no"', 27, "'x-b' is not kept", '"x-b" in keep_headers'),
        ('keep_headers: ["x-a"]', 'has(headers.kind) ? "a" : "b"', None, "'kind' is not kept", '"kind" in keep_headers'),
    ],
)  # fmt: skip
def test_check_warns_of_an_expression_that_reads_what_is_not_kept(
    keep: str, expression: str, column: int | None, told: str, expected: str
) -> None:
    [(line, at, message, wanted)] = warnings(
        f"    message {{\n          kind:         {expression}\n    }}\n    {keep}"
    )

    assert (line, wanted) == (7, expected)
    assert told in message
    assert column is None or at == column - 2


def test_check_warns_of_a_key_and_of_a_command_that_read_what_is_not_kept() -> None:
    told = warnings('    keep_headers: []\n    idempotency { key: headers["x-id"] }')
    assert [line for line, _, message, _ in told if "'x-id' is not kept" in message] == [7]
    text = 'app A {\n webhook W {\n  verify: none\n  keep_headers: []\n  command: A.B {\n   a: headers["x-id"]\n  }\n }\n}\n'
    [problem] = check(text, "a.skep").problems
    assert (problem.line, "'x-id' is not kept" in problem.message) == (6, True)


@pytest.mark.parametrize("keep", ["", 'keep_headers: ["*"]', 'keep_headers: ["X-Kind"]'])
def test_check_takes_an_expression_that_reads_what_is_kept(keep: str) -> None:
    assert warnings(f'    message {{ kind: headers["x-kind"] }}\n    {keep}') == []


def test_the_list_has_a_reason_for_every_header_it_leaves_out() -> None:
    assert not NEVER.keys() & BY_NAME_OR_ALL.keys()
    assert all(name == name.lower() for name in (*NEVER, *BY_NAME_OR_ALL))
    for name in (*NEVER, *BY_NAME_OR_ALL):
        assert isinstance(KeptHeaders(None).why_not(name), Reason), name
    for name in NEVER:
        assert KeptHeaders(["*", name]).why_not(name) is NEVER[name]
