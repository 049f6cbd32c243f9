"""Reading the answers of a kind, each decoder made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from skep.client.exchange import ApiResponse
from skep.client.failures import unexpected

T = TypeVar("T")

_any = msgspec.json.Decoder()


def reader(kind: type[T]) -> Callable[[ApiResponse], T]:
    """A function that reads an answer into this type."""
    decode = msgspec.json.Decoder(kind).decode

    def read(answer: ApiResponse) -> T:
        try:
            return decode(answer.body)
        except (msgspec.DecodeError, ValueError) as error:
            raise unexpected(answer, error) from error

    return read


def anything(answer: ApiResponse) -> Any:
    """The answer as plain Python values; None when it has no body."""
    if not len(answer.body):
        return None
    try:
        return _any.decode(answer.body)
    except msgspec.DecodeError as error:
        raise unexpected(answer, error) from error


def nothing(answer: ApiResponse) -> None:
    """Read nothing: the call went well, and its answer says no more."""
