"""The verbs of the store protocol on a socket, as MessagePack. Their encoders and decoders are made from type hints.

Both ends build the same table from the same protocol. Bytes that do not decode as the protocol's type are refused. So no struct of the
model is defined twice, and only data is ever decoded.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from types import GenericAlias
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

import skep
from skep.errors import Code, SkepError
from skep.store.protocol import Store
from skep.store.protocol.access import AccessStore
from skep.store.protocol.records import RecordStore
from skep.store.protocol.refusals import RefusalStore
from skep.store.protocol.scheduled import ScheduledStore

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    import pyarrow as pa

T = TypeVar("T")

PARTS: dict[str, type] = {
    "": Store,
    "access": AccessStore,
    "refusals": RefusalStore,
    "records": RecordStore,
    "scheduled": ScheduledStore,
}
"""The protocols, by the attribute of the store that has them."""
OF_ONE_END = frozenset({"open", "close", "resume", "fence"})
"""The verbs that each end does by itself, as a local file has no sessions that could be cut off."""


LEAST, GREATEST = -(2**63), 2**64 - 1
"""The range of integers in MessagePack."""


class RemoteVerb:
    """One verb: its number in the table, and the codecs of its arguments and its result."""

    def __init__(self, number: int, part: str, name: str) -> None:
        self.number = number
        self.part = part
        self.name = name
        self._called = f"{part}.{name}" if part else name
        self._function = getattr(PARTS[part], name)
        parameters = list(inspect.signature(self._function).parameters.values())[1:]
        self._names = [parameter.name for parameter in parameters]
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        named_only = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        self._named_only = named_only
        self._positional = len(parameters) - len(named_only)

    def __str__(self) -> str:
        return self._called

    def arguments(self, given: tuple[object, ...], named: Mapping[str, object]) -> bytes:
        """All arguments of a call, in order."""
        if named or len(given) != len(self._names):
            missing = self._names[len(given) :]
            given = (*given, *(named[name] if name in named else self._defaults[name] for name in missing))
        try:
            return encode(given)
        except OverflowError:
            plain = msgspec.to_builtins(given, builtin_types=(bytes,), enc_hook=_to_plain)
            return encode(_within_bounds(plain))

    def called(self, store: object, arguments: list[Any]) -> Any:
        """Call the verb on a store."""
        function = getattr(getattr(store, self.part) if self.part else store, self.name)
        if not self._named_only:
            return function(*arguments)
        named = dict(zip(self._named_only, arguments[self._positional :], strict=True))
        return function(*arguments[: self._positional], **named)

    @functools.cached_property
    def decode_arguments(self) -> Callable[[memoryview], Any]:
        """Decodes a call's arguments, as a tuple."""
        return decoder(GenericAlias(tuple, tuple(self._hints[name] for name in self._names)))

    @functools.cached_property
    def decode_result(self) -> Callable[[memoryview], Any]:
        """Decodes a call's result."""
        return decoder(self._hints["return"])

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self._function)
        except NameError:  # a verb of the log in bulk, which is called only where Arrow is installed
            from skep.arrow import log

            return get_type_hints(self._function, vars(inspect.getmodule(self._function)) | vars(log))


def _within_bounds(value: Any) -> Any:
    """The arguments with integers cut to the range of MessagePack. A seq beyond all messages stays beyond all messages."""
    if isinstance(value, dict):
        return {name: _within_bounds(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_within_bounds(one) for one in value]
    return max(LEAST, min(value, GREATEST)) if isinstance(value, int) and not isinstance(value, bool) else value


def _table() -> list[RemoteVerb]:
    names = [
        (part, name)
        for part, protocol in PARTS.items()
        for name, member in inspect.getmembers(protocol)
        if inspect.iscoroutinefunction(member) and not name.startswith("_") and name not in OF_ONE_END
    ]
    return [RemoteVerb(number, part, name) for number, (part, name) in enumerate(names)]


VERBS = _table()
VERSION = hashlib.blake2b(
    f"{skep.__version__} {[(verb.part, verb.name) for verb in VERBS]}".encode(), digest_size=16
).digest()
"""The checksum of Skep's version and the verbs. Both ends must have the same: a worker of another version may have other structs."""


class ErrorData(Struct, array_like=True):
    """A `SkepError` as data."""

    code: Code
    message: str
    details: dict[str, Any]


def failure_of(error: SkepError) -> bytes:
    """An error as bytes, with the details that can be encoded."""
    try:
        return encode(ErrorData(error.code, error.message, error.details))
    except (TypeError, ValueError, OverflowError):
        return encode(ErrorData(error.code, error.message, {name: str(value) for name, value in error.details.items()}))


def error_of(payload: memoryview) -> SkepError:
    """The error from its bytes."""
    failure = _decode_failure(payload)
    return SkepError(failure.code, failure.message, **failure.details)


def decoder(kind: Any) -> Callable[[memoryview], Any]:
    """The decoder of one type."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_from_plain).decode


def _to_plain(value: object) -> bytes:
    """Arrow columns as an Arrow stream. They are the only values that are no structs."""
    import pyarrow as pa

    if isinstance(value, pa.Array):
        value = pa.record_batch([value], names=["column"])
    if not isinstance(value, pa.RecordBatch):
        raise NotImplementedError(type(value).__name__)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as stream:
        stream.write_batch(value)
    return bytes(sink.getvalue())


def _from_plain(kind: type[T], value: bytes) -> pa.RecordBatch | pa.Array:
    import pyarrow as pa

    batch = pa.ipc.open_stream(value).read_next_batch()
    return batch if kind is pa.RecordBatch else batch.column(0)


encode = msgspec.msgpack.Encoder(enc_hook=_to_plain).encode
_decode_failure = decoder(ErrorData)
