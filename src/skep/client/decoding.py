"""Payloads into types: what msgspec knows (structs, dataclasses, plain types), and pydantic models by their own means."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

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
        name = getattr(kind, "__name__", str(kind))
        raise SkepError(Code.INVALID_PAYLOAD, f"the payload does not fit {name}: {error}") from error


@lru_cache(maxsize=256)
def _decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("type[Any]", kind), dec_hook=_by_its_own_means)


def _by_its_own_means(kind: type[Any], value: object) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"a payload cannot be read as {kind.__name__}")
    return validate(value)
