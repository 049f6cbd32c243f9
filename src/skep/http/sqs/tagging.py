"""Tags and permissions: kept with a queue and told again. Who may do what is said by Skep's keys, and not by these."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from skep.engine.validate import is_name
from skep.http.request.call import Call
from skep.http.sqs import attributes
from skep.http.sqs.door import SqsDoor, named
from skep.http.sqs.faults import OVER_LIMIT, SqsError, invalid, missing
from skep.http.sqs.names import arn
from skep.http.sqs.queues import Note, SqsQueue
from skep.http.sqs.shapes import (
    AddPermissionRequest,
    Nothing,
    QueueRequest,
    RemovePermissionRequest,
    TagRequest,
    TagsResult,
    UntagRequest,
)
from skep.model.key import Verb

TAGS_MAX = 50
TAG_NAME_CHARACTERS, TAG_VALUE_CHARACTERS = 128, 256
ACTIONS_MAX = 7
STATEMENTS_MAX = 20
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}", re.ASCII)
_ACTION = re.compile(r"\*|[A-Z][A-Za-z]{1,60}", re.ASCII)


def check_tags(tags: Mapping[str, str]) -> None:
    """Check tags that are to be set."""
    if len(tags) > TAGS_MAX:
        raise invalid("Tags", len(tags), f"Too many tags: a queue has at most {TAGS_MAX}.")
    for name, value in tags.items():
        if not 1 <= len(name) <= TAG_NAME_CHARACTERS or name.lower().startswith("aws:"):
            raise invalid(
                "Tag.Key", name, f"Tag keys have 1 to {TAG_NAME_CHARACTERS} characters, and do not begin with aws:."
            )
        if len(value) > TAG_VALUE_CHARACTERS:
            raise invalid("Tag.Value", value, f"Tag values have at most {TAG_VALUE_CHARACTERS} characters.")


async def list_tags(door: SqsDoor, call: Call, request: QueueRequest) -> TagsResult:
    """The tags of a queue."""
    return TagsResult((await door.queues.read(named(call, request.queue_url, Verb.READ))).note.tags)


async def tag(door: SqsDoor, call: Call, request: TagRequest) -> Nothing:
    """Set tags."""
    key = named(call, request.queue_url, Verb.ADMIN)
    if not request.tags:
        raise missing("Tags")

    def changed(queue: SqsQueue) -> Note:
        tags = {**queue.note.tags, **request.tags}
        check_tags(tags)
        return msgspec.structs.replace(queue.note, tags=tags)

    await door.queues.change_note(key, changed)
    return Nothing()


async def untag(door: SqsDoor, call: Call, request: UntagRequest) -> Nothing:
    """Remove tags."""
    key = named(call, request.queue_url, Verb.ADMIN)
    if not request.tag_keys:
        raise missing("TagKeys")

    def changed(queue: SqsQueue) -> Note:
        kept = {name: value for name, value in queue.note.tags.items() if name not in request.tag_keys}
        return msgspec.structs.replace(queue.note, tags=kept)

    await door.queues.change_note(key, changed)
    return Nothing()


async def add_permission(door: SqsDoor, call: Call, request: AddPermissionRequest) -> Nothing:
    """Add a statement to the policy of a queue."""
    key = named(call, request.queue_url, Verb.ADMIN)
    label = request.label
    if label is None or not _LABEL.fullmatch(label):
        raise invalid("Label", label, "it has 1 to 80 letters, digits, hyphens and underscores.")
    if not request.account_ids or not request.actions:
        raise missing("AWSAccountIds" if not request.account_ids else "Actions")
    for account in request.account_ids:
        if not is_name(account):
            raise invalid("AWSAccountId", account, "it is no account.")
    if len(request.actions) > ACTIONS_MAX:
        raise SqsError(OVER_LIMIT, f"{len(request.actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.")
    for action in request.actions:
        if not _ACTION.fullmatch(action):
            raise invalid("ActionName", action, "it is no action of SQS.")
    resource = arn(call, key)
    statement = {
        "Sid": label, "Effect": "Allow", "Principal": {"AWS": [f"arn:aws:iam::{one}:root" for one in request.account_ids]},
        "Action": [f"SQS:{action}" for action in request.actions], "Resource": resource,
    }  # fmt: skip

    def changed(queue: SqsQueue) -> Note:
        policy, statements = _policy(queue, resource)
        if any(one.get("Sid") == label for one in statements):
            raise invalid("Label", label, "Already exists.")
        if len(statements) >= STATEMENTS_MAX:
            raise SqsError(OVER_LIMIT, f"A policy has at most {STATEMENTS_MAX} statements.")
        return _with_policy(queue, {**policy, "Statement": [*statements, statement]})

    await door.queues.change_note(key, changed)
    return Nothing()


async def remove_permission(door: SqsDoor, call: Call, request: RemovePermissionRequest) -> Nothing:
    """Remove a statement from the policy of a queue."""
    key = named(call, request.queue_url, Verb.ADMIN)
    label, resource = request.label, arn(call, key)

    def changed(queue: SqsQueue) -> Note:
        policy, statements = _policy(queue, resource)
        left = [one for one in statements if one.get("Sid") != label]
        if label is None or len(left) == len(statements):
            raise invalid("Label", label, "can't find label.")
        return _with_policy(queue, {**policy, "Statement": left} if left else None)

    await door.queues.change_note(key, changed)
    return Nothing()


def _policy(queue: SqsQueue, resource: str) -> tuple[dict[str, object], list[dict[str, object]]]:
    """The policy of a queue, and its statements."""
    text = queue.note.attributes.get(attributes.POLICY)
    if text is None:
        return {"Version": "2008-10-17", "Id": f"{resource}/SQSDefaultPolicy", "Statement": []}, []
    policy = attributes.document(attributes.POLICY, text)
    statements = policy.get("Statement")
    found = statements if isinstance(statements, list) else [statements]
    return policy, [one for one in found if isinstance(one, dict)]


def _with_policy(queue: SqsQueue, policy: dict[str, object] | None) -> Note:
    text = "" if policy is None else msgspec.json.encode(policy).decode()
    if len(text) > attributes.VALUE_CHARACTERS:
        raise SqsError(OVER_LIMIT, f"A policy has at most {attributes.VALUE_CHARACTERS} characters.")
    return msgspec.structs.replace(
        queue.note, attributes=attributes.kept({attributes.POLICY: text}, queue.note.attributes)
    )
