"""Typed pushes: validate a message against its queue's type, and derive its partition and transaction id by the spec.

A partition from the producer stays. A transaction id does not: the queue promises to take each key once, and clients mint an id for
every message, so the promise would hold for none of their messages.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from skep.apps.compiled import DeclaredQueue
from skep.errors import Code, SkepError
from skep.model import DEFAULT_PARTITION, NewMessage
from skep.spec import Expression, ExpressionError, Misfit, decode, evaluate_json, misfit
from skep.spec.expressions import shown


def fitted(declared: DeclaredQueue, message: NewMessage, index: int) -> NewMessage:
    """The message as it is stored; MESSAGE_INVALID when it is not of its queue's type."""
    if type(message.payload) is not bytes:
        return message  # the engine refuses it, with a better word
    if message.content_type is not None:
        if declared.validator is None:
            return message
        raise invalid(declared.name, Misfit("", shown(message.content_type), "JSON"), index)
    if declared.validator is not None:
        found = misfit(declared.validator, message.payload)
        if found is not None:
            raise invalid(declared.name, found, index)
    needs_partition = declared.key is not None and message.partition == DEFAULT_PARTITION
    if not needs_partition and declared.repeat_key is None:
        return message
    variables = variables_of(declared, message.payload, index)
    partition, transaction_id = message.partition, message.transaction_id
    if needs_partition and declared.key is not None:
        partition = key_text(declared.name, "key", declared.key, variables, index)
    if declared.repeat_key is not None:
        transaction_id = key_text(declared.name, "idempotency key", declared.repeat_key, variables, index)
    return msgspec.structs.replace(message, partition=partition, transaction_id=transaction_id)


def variables_of(declared: DeclaredQueue, payload: bytes, index: int) -> Mapping[str, object]:
    """The variables of a queue's expressions for a valid message."""
    try:
        # A json field that fits may still have no value in Python: a number like 1e999, or a list of 10,000 lists.
        if declared.spec.message_type and declared.validator is not None:
            return decode(declared.validator, payload)
        return {"message": msgspec.json.decode(payload)}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(declared.name, Misfit("", None, f"JSON: {str(error)[:200]}"), index) from None


def key_text(queue: str, what: str, expression: Expression, variables: Mapping[str, object], index: int) -> str:
    """The value of a key expression as text; it must be a text or a whole number."""
    try:
        value = evaluate_json(expression, variables)
    except ExpressionError as error:
        raise SkepError(
            Code.MESSAGE_INVALID, f"message {index}: the {what} of {queue!r} has no value: {error.message}",
            queue=queue, index=index, field=expression.text, value=shown(error.value),
        ) from None  # fmt: skip
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise SkepError(
        Code.MESSAGE_INVALID, f"message {index}: the {what} of {queue!r} must be a text or a whole number, not {shown(value)}",
        queue=queue, index=index, field=expression.text, value=shown(value),
    )  # fmt: skip


def invalid(queue: str, found: Misfit, index: int) -> SkepError:
    """The error that names the message, the field, and the value that does not fit."""
    return SkepError(
        Code.MESSAGE_INVALID, f"message {index}: {found}",
        queue=queue, index=index, field=found.field, value=found.value, expected=found.expected,
    )  # fmt: skip
