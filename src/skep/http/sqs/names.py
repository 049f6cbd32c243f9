"""How SQS names things: accounts, queue URLs, ARNs, and receipt handles."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

import msgspec
from msgspec import Struct

from skep.engine.validate import SEQ_MAX, TOKEN_BYTES, is_fit, is_name
from skep.http.request.call import Call
from skep.http.sqs.faults import HANDLE_INVALID, INVALID_VALUE, SqsError, invalid
from skep.model import DEFAULT_TENANT, QueueKey, Seq, Token

PATH = "/sqs/"
"""The beginning of the path of every queue URL; the account and the queue follow."""
DEFAULT_ACCOUNT = "000000000000"
"""The account id of the default tenant; that of any other is its name."""
DEFAULT_REGION = "us-east-1"
FIFO = ".fifo"
HANDLE_CHARACTERS = 8_192
MESSAGES_MAX = 10
"""How many messages one receive gives at most."""

# The length of a key's id is bounded, so that a long header is searched in one pass.
_REGION = re.compile(rb"Credential=[^/\s]{1,128}/[0-9]{8}/([a-z0-9-]{1,40})/")
_ARN_PARTS = 6


def account_of(tenant: str) -> str:
    """The account id of a tenant."""
    return DEFAULT_ACCOUNT if tenant == DEFAULT_TENANT else tenant


def tenant_of(account: str) -> str:
    """The tenant with this account id."""
    return DEFAULT_TENANT if account == DEFAULT_ACCOUNT else account


def queue_url(call: Call, key: QueueKey, path_prefix: str) -> str:
    """The URL of a queue, under the name by which the caller knows this server, and behind the ``path_prefix`` of a proxy."""
    host = (call.header(b"host") or b"localhost").decode("latin-1")
    path = f"{path_prefix}{PATH}{quote(account_of(key.tenant), safe='')}/{quote(key.name, safe='')}"
    return f"{'https' if call.is_https else 'http'}://{host}{path}"


def key_of_url(url: str) -> QueueKey:
    """The queue of a URL: the last two parts of its path, whatever server it names."""
    try:
        parts = urlsplit(url).path.split("/") if len(url) <= HANDLE_CHARACTERS else []
    except ValueError:  # a host that is none
        parts = []
    if len(parts) < 3 or not parts[-1] or not parts[-2]:
        raise SqsError(
            INVALID_VALUE, f"The address {url[:200]} is not valid for this endpoint: it has no account and queue."
        )
    try:
        return QueueKey(unquote(parts[-1], errors="strict"), tenant_of(unquote(parts[-2], errors="strict")))
    except UnicodeDecodeError:
        raise invalid("QueueUrl", url, "it is not UTF-8.") from None


def region_of(call: Call) -> str:
    """The region that the caller signed for; servers have none of their own."""
    found = _REGION.search(call.header(b"authorization") or unquote_to_bytes(call.scope["query_string"]))
    return DEFAULT_REGION if found is None else found[1].decode()


def arn(call: Call, key: QueueKey) -> str:
    """The ARN of a queue."""
    return f"arn:aws:sqs:{region_of(call)}:{account_of(key.tenant)}:{key.name}"


def key_of_arn(text: str, parameter: str) -> QueueKey:
    """The queue of an ARN, of whichever region."""
    parts = text.split(":", _ARN_PARTS - 1)
    if len(parts) < _ARN_PARTS or parts[0] != "arn" or parts[2] != "sqs" or not parts[4] or not parts[5]:
        raise invalid(parameter, text, "it is not the ARN of a queue.")
    return QueueKey(parts[5], tenant_of(parts[4]))


class Handle(Struct, frozen=True, array_like=True, gc=False):
    """The parts of a receipt handle: a lease, one of its messages, and how many the lease had in the message's partition.

    It is no secret and proves nothing: the token in it is what the store compares.
    """

    token: Token
    tenant: str
    queue: str
    group: str
    partition: str
    seq: Seq
    messages: int

    @property
    def key(self) -> QueueKey:
        """The queue of the message."""
        return QueueKey(self.queue, self.tenant)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Handle).decode


def write_handle(receipt: Handle) -> str:
    """The text of a receipt handle."""
    return base64.b64encode(_encode(receipt)).decode()


def read_handle(handle: str | None, key: QueueKey) -> Handle:
    """The parts of a handle of this queue; ReceiptHandleIsInvalid when it is none."""
    try:
        if handle is None or len(handle) > HANDLE_CHARACTERS:
            raise ValueError
        receipt = _decode(base64.b64decode(handle, validate=True))
        is_sound = (
            len(receipt.token) == TOKEN_BYTES and 0 < receipt.seq <= SEQ_MAX and 0 < receipt.messages <= MESSAGES_MAX
        )
        if not is_sound or receipt.key != key or not (is_fit(receipt.partition) and is_name(receipt.group)):
            raise ValueError
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise SqsError(
            HANDLE_INVALID, f'The input receipt handle "{(handle or "")[:200]}" is not a valid receipt handle.'
        ) from None
    return receipt
