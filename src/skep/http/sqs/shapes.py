"""The requests and results of SQS's actions, as both protocols have them."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import astuple

Entry = TypeVar("Entry", bound=Struct)


class AttributeValue(Struct, rename="pascal", omit_defaults=True):
    """A message attribute; a binary value stays Base64, as it came."""

    data_type: str | None = None
    string_value: str | None = None
    binary_value: str | None = None


Attributes = dict[str, AttributeValue]


class QueueRequest(Struct, rename="pascal"):
    """A request that names a queue by its URL."""

    queue_url: str | None = None


class Entries(Struct, Generic[Entry], array_like=True, frozen=True):
    """The ten entries of a batch, and one by which too many are seen. What follows is skipped unread: millions of empty ones fit in a body."""

    first: Entry | UnsetType = UNSET
    second: Entry | UnsetType = UNSET
    third: Entry | UnsetType = UNSET
    fourth: Entry | UnsetType = UNSET
    fifth: Entry | UnsetType = UNSET
    sixth: Entry | UnsetType = UNSET
    seventh: Entry | UnsetType = UNSET
    eighth: Entry | UnsetType = UNSET
    ninth: Entry | UnsetType = UNSET
    tenth: Entry | UnsetType = UNSET
    one_too_many: Entry | UnsetType = UNSET

    def listed(self) -> list[Entry]:
        """Those that are there."""
        return [entry for entry in astuple(self) if entry is not UNSET]


class CreateQueueRequest(Struct, rename="pascal"):
    queue_name: str | None = None
    attributes: dict[str, str] = {}
    tags: dict[str, str] = field(default_factory=dict, name="tags")


class GetQueueUrlRequest(Struct, rename="pascal"):
    queue_name: str | None = None
    queue_owner: str | None = field(default=None, name="QueueOwnerAWSAccountId")


class ListQueuesRequest(Struct, rename="pascal"):
    queue_name_prefix: str = ""
    next_token: str | None = None
    max_results: int | None = None


class PageRequest(QueueRequest, rename="pascal"):
    next_token: str | None = None
    max_results: int | None = None


class GetAttributesRequest(QueueRequest, rename="pascal"):
    attribute_names: list[str] = []


class SetAttributesRequest(QueueRequest, rename="pascal"):
    attributes: dict[str, str] = {}


class SendEntry(Struct, rename="pascal"):
    """A message to send; ``id`` only in a batch."""

    id: str | None = None
    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: Attributes | None = None
    message_system_attributes: Attributes | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendRequest(SendEntry, rename="pascal"):
    queue_url: str | None = None


class SendBatchRequest(QueueRequest, rename="pascal"):
    entries: Entries[SendEntry] = Entries()


class ReceiveRequest(QueueRequest, rename="pascal"):
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: int = 1
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class HandleEntry(Struct, rename="pascal"):
    """A message in flight; ``id`` only in a batch, ``visibility_timeout`` only to change it."""

    id: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class HandleRequest(HandleEntry, rename="pascal"):
    queue_url: str | None = None


class HandleBatchRequest(QueueRequest, rename="pascal"):
    entries: Entries[HandleEntry] = Entries()


class TagRequest(QueueRequest, rename="pascal"):
    tags: dict[str, str] = {}


class UntagRequest(QueueRequest, rename="pascal"):
    tag_keys: list[str] = []


class AddPermissionRequest(QueueRequest, rename="pascal"):
    label: str | None = None
    account_ids: list[str] = field(default_factory=list, name="AWSAccountIds")
    actions: list[str] = []


class RemovePermissionRequest(QueueRequest, rename="pascal"):
    label: str | None = None


class StartMoveRequest(Struct, rename="pascal"):
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class ListMovesRequest(Struct, rename="pascal"):
    source_arn: str | None = None
    max_results: int | None = None


class CancelMoveRequest(Struct, rename="pascal"):
    task_handle: str | None = None


# results


class Nothing(Struct):
    """The result of an action that answers only that it is done."""


class QueueUrlResult(Struct, rename="pascal"):
    queue_url: str


class QueueUrlsResult(Struct, rename="pascal", omit_defaults=True):
    queue_urls: list[str] = []
    next_token: str | None = None


class SourceQueuesResult(Struct, rename="pascal", omit_defaults=True):
    queue_urls: list[str] = field(name="queueUrls")
    next_token: str | None = None


class AttributesResult(Struct, rename="pascal", omit_defaults=True):
    attributes: dict[str, str] = {}


class SendResult(Struct, rename="pascal", omit_defaults=True):
    message_id: str
    md5_of_body: str = field(name="MD5OfMessageBody")
    md5_of_attributes: str | None = field(default=None, name="MD5OfMessageAttributes")
    md5_of_system_attributes: str | None = field(default=None, name="MD5OfMessageSystemAttributes")
    sequence_number: str | None = None


class SentEntry(SendResult, rename="pascal", omit_defaults=True):
    id: str = ""


class DoneEntry(Struct, rename="pascal"):
    id: str


class FailedEntry(Struct, rename="pascal"):
    id: str
    sender_fault: bool
    code: str
    message: str


class SendBatchResult(Struct, rename="pascal", omit_defaults=True):
    """What became of each entry. As in SQS an empty list is not told: an SDK takes the list of those that failed for a failure."""

    successful: list[SentEntry] = []
    failed: list[FailedEntry] = []


class BatchResult(Struct, rename="pascal", omit_defaults=True):
    """As `SendBatchResult`, of messages that were received."""

    successful: list[DoneEntry] = []
    failed: list[FailedEntry] = []


class SqsMessage(Struct, rename="pascal", omit_defaults=True):
    message_id: str
    receipt_handle: str
    md5_of_body: str = field(name="MD5OfBody")
    body: str
    attributes: dict[str, str] | None = None
    md5_of_attributes: str | None = field(default=None, name="MD5OfMessageAttributes")
    message_attributes: Attributes | None = None


class ReceiveResult(Struct, rename="pascal", omit_defaults=True):
    messages: list[SqsMessage] = []


class TagsResult(Struct, rename="pascal", omit_defaults=True):
    tags: dict[str, str] = {}


class StartMoveResult(Struct, rename="pascal"):
    task_handle: str


class CancelMoveResult(Struct, rename="pascal"):
    moved: int = field(name="ApproximateNumberOfMessagesMoved")


class MoveTask(Struct, rename="pascal", omit_defaults=True):
    status: str
    source_arn: str
    started_timestamp: int
    moved: int = field(name="ApproximateNumberOfMessagesMoved")
    to_move: int | None = field(default=None, name="ApproximateNumberOfMessagesToMove")
    task_handle: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    failure_reason: str | None = None


class ListMovesResult(Struct, rename="pascal", omit_defaults=True):
    results: list[MoveTask] = []
