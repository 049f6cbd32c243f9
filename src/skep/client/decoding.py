"""Decode payloads into types: msgspec decodes structs, dataclasses and plain types; pydantic models decode themselves."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
import msgspec.inspect
from msgspec import Struct

from skep.errors import Code, SkepError

T = TypeVar("T")


def decode_json(payload: bytes, kind: type[T]) -> T:
    """The payload as this type; INVALID_PAYLOAD, with the reason, when it does not fit."""
    validate = getattr(kind, "model_validate_json", None)
    try:
        if validate is not None:
            return cast("T", validate(payload))
        return cast("T", _decoder(cast("Hashable", kind)).decode(payload))
    except (msgspec.DecodeError, ValueError) as error:
        misfit = "is not JSON" if kind is Any else f"does not fit {getattr(kind, '__name__', str(kind))}"
        raise SkepError(Code.INVALID_PAYLOAD, f"the payload {misfit}: {error}") from error


def check_decodable(kind: Any) -> None:
    """TypeError, with the reason, when no JSON can be decoded to the type, whatever the payload is."""
    if kind in (Any, object, bytes) or hasattr(kind, "model_validate_json"):
        return
    _decoder(kind)  # which refuses what contradicts itself
    for strange in _strange(msgspec.inspect.type_info(kind), set()):
        if strange is not object and not hasattr(strange, "model_validate"):
            raise TypeError(f"{getattr(strange, '__name__', strange)} is no type that JSON can be decoded to")


def _strange(info: object, seen: set[int]) -> Iterator[Any]:
    """The types within a type that msgspec does not know."""
    if isinstance(info, msgspec.inspect.CustomType):
        yield info.cls
    elif isinstance(info, Struct) and id(info) not in seen:
        seen.add(id(info))
        for name in info.__struct_fields__:
            yield from _strange(getattr(info, name), seen)
    elif isinstance(info, tuple):
        for one in info:
            yield from _strange(one, seen)


@lru_cache(maxsize=256)
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("type[Any]", kind), dec_hook=_by_its_own_means)


def _by_its_own_means(kind: type[Any], value: object) -> Any:
    if kind is object:
        return value  # anything, as it is
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"a payload cannot be read as {kind.__name__}")
    return validate(value)
