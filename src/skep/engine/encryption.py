"""Encryption of queues: payloads are sealed (encrypted) before any other part sees them, and opened (decrypted) for readers.

This module knows the encrypted queues and their keys. It fails closed. The store refuses a plain payload for an encrypted queue; by
that refusal a server learns that the queue is encrypted now. Without the keys nothing is sealed or opened, and the server does not
start.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from skep.clock import Clock, Instant
from skep.crypto.envelope import MESSAGES_PER_KEY, DataKey, Sealed, damaged, key_of
from skep.crypto.master import MasterKeys, data_key, new_secret
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint
from skep.model import (
    DEFAULT_PARTITION,
    SEALED_ERROR,
    SEALED_KEY,
    SEALED_TYPE,
    DeadLetterFilter,
    NewMessage,
    PushBatch,
    PushOutcome,
    Queue,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Seq,
    Settlement,
)
from skep.model.data_key import WrappedKey
from skep.model.key import SealedSecret
from skep.model.record import Receipt
from skep.store.protocol.data_keys import DataKeyVerbs
from skep.store.protocol.dead_letters import DeadLetterReadVerbs, DeadLetterVerbs
from skep.store.rules import kept_error

SEALS_RESERVED = 1 << 16
"""How many messages of a key's budget a server reserves at a time. Unused ones count as sealed when the server stops."""
MISSING_REMEMBERED = 10_000
"""How many ids of destroyed keys are remembered, so that a row of a destroyed key does not cause another read of all keys."""

ERROR_TYPE = "text/x-skep-error"
"""The content type inside the envelope of an error, so that errors and payloads cannot be exchanged."""
UNREADABLE_ERROR = "(this error is sealed, and cannot be opened any more)"

log = structlog.get_logger("skep.encryption")

StoredError = tuple[str | None, QueueKey, Seq | None]
"""A stored error, the queue of its message, and the seq of the message where it is known."""

Sources = Mapping[tuple[QueueKey, Seq], str]
"""The recorded source queues of dead letters, by dead-letter queue and seq."""


class EncryptedRow(Protocol):
    """The fields that decryption needs of a message, whatever its class."""

    @property
    def queue(self) -> QueueKey: ...
    @property
    def seq(self) -> Seq: ...
    @property
    def partition(self) -> str: ...
    @property
    def id(self) -> Id: ...
    @property
    def trace_id(self) -> Id: ...
    @property
    def content_type(self) -> str | None: ...
    @property
    def payload(self) -> bytes: ...


class KeysAndLetters(DataKeyVerbs, DeadLetterReadVerbs, DeadLetterVerbs, Protocol):
    """The store's verbs for wrapped keys and dead letters."""


class Encryption:
    """The data keys of a server: sealing, opening, rotating and shredding."""

    def __init__(self, store: KeysAndLetters, clock: Clock, ids: IdMint, masters: MasterKeys | None) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._masters = masters
        self._sealing: set[QueueKey] = set()
        self._keys: dict[Id, DataKey] = {}
        self._newest: dict[QueueKey, DataKey] = {}
        self._made_at: dict[QueueKey, Instant] = {}
        self._reserved: dict[Id, int] = {}
        self._missing: set[Id] = set()
        self._making = asyncio.Lock()

    def seal_secret(self, label: str, secret: str) -> SealedSecret:
        """A secret that the store may keep; KEY_UNAVAILABLE without master keys."""
        if self._masters is None:
            raise SkepError(
                Code.KEY_UNAVAILABLE,
                "a secret that must be kept is sealed by a master key, and there is none: set encryption.master_keys",
            )
        sealed = self._masters.seal(label, secret.encode())
        return SealedSecret(self._masters.current, base64.b64encode(sealed).decode())

    def open_secret(self, label: str, kept: SealedSecret) -> str:
        """The secret that `seal_secret` sealed."""
        if self._masters is None:
            raise no_master_keys()
        return self._masters.open(kept.master, label, base64.b64decode(kept.sealed)).decode()

    async def load(self) -> None:
        """Read all keys again. KEY_UNAVAILABLE when this server cannot unwrap one of them."""
        async with self._making:  # so that keys read before a shred do not come back after it
            self._missing.clear()  # a restored database may have destroyed keys again
            await self._load()

    async def _load(self) -> None:
        wrapped = await self._store.data_keys()
        if wrapped and self._masters is None:
            raise no_master_keys()
        keys = [self._keys.get(one.id) or self._unwrapped(one) for one in wrapped]
        self._keys = {key.id: key for key in keys}
        self._newest = {key.queue: key for key in keys}
        self._made_at = {one.queue: one.created_at for one in wrapped}
        self._reserved = {id_: left for id_, left in self._reserved.items() if id_ in self._keys}

    def _unwrapped(self, wrapped: WrappedKey) -> DataKey:
        if self._masters is None:
            raise no_master_keys()
        return data_key(self._masters, wrapped.master, wrapped.id, wrapped.queue, wrapped.wrapped)

    def learn(self, queue: Queue) -> None:
        """Remember whether a queue is encrypted."""
        if queue.settings.encryption_enabled:
            self._sealing.add(queue.key)
        else:
            self._sealing.discard(queue.key)

    def forget(self, key: QueueKey) -> None:
        """Forget a deleted queue. Its keys stay, as its dead letters may be in another queue."""
        self._sealing.discard(key)

    def check_enabling(self, wanted: QueueSettings | QueueChanges) -> None:
        """Refuse to enable encryption on a server without master keys."""
        if wanted.encryption_enabled is True and self._masters is None:
            raise no_master_keys()

    def seals(self, key: QueueKey) -> bool:
        """Whether a queue is encrypted, as far as this server knows."""
        return key in self._sealing

    async def seal(self, messages: Sequence[NewMessage], ids: Sequence[Id]) -> list[NewMessage]:
        """The messages to store, with those of encrypted queues sealed."""
        sealed = list(messages)
        if not self._sealing:
            return sealed
        by_queue: dict[QueueKey, list[int]] = {}
        for index, message in enumerate(messages):
            if message.queue in self._sealing:
                by_queue.setdefault(message.queue, []).append(index)
        for queue, indexes in by_queue.items():
            key = await self._key_for(queue, len(indexes))
            if len(indexes) == len(sealed):
                return key.seal(messages, ids)
            made = key.seal([messages[index] for index in indexes], [ids[index] for index in indexes])
            for index, message in zip(indexes, made, strict=True):
                sealed[index] = message
        return sealed

    def require(self, queue: QueueKey) -> None:
        """Note that a queue is encrypted, as the store refused a plain payload."""
        self._sealing.add(queue)

    async def sealed_anew(self, batch: PushBatch, outcome: PushOutcome) -> PushBatch | None:
        """The batch with its plain messages sealed, when the store refused it as NOT_ENCRYPTED; None for any other outcome.

        The batch may have waited while its queue was encrypted, or another server may have encrypted the queue a moment ago. The
        caller pushes the sealed batch again, in its own way.
        """
        refused = [
            batch.messages[index].queue
            for index, result in enumerate(outcome.results)
            if result.code is Code.NOT_ENCRYPTED
        ]
        return await self.seal_batch(batch, refused) if refused else None

    async def seal_batch(self, batch: PushBatch, queues: Iterable[QueueKey]) -> PushBatch | None:
        """The batch with its plain messages sealed, now that these queues are encrypted; None when nothing changes."""
        plain = [index for index, message in enumerate(batch.messages) if message.content_type != SEALED_TYPE]
        if not plain:
            return None
        for queue in queues:
            self.require(queue)
        made = await self.seal([batch.messages[index] for index in plain], [batch.ids[index] for index in plain])
        messages = list(batch.messages)
        for index, message in zip(plain, made, strict=True):
            messages[index] = message
        return None if messages == batch.messages else msgspec.structs.replace(batch, messages=messages)

    async def quarantine(
        self, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
    ) -> PushOutcome:
        """Put a message into the dead letters of its queue, sealed if the queue is encrypted, also when this server did not know that."""
        batch = PushBatch([message], [id_])
        batch = await self.seal_batch(batch, ()) or batch
        try:
            return await self._store.quarantine(batch.messages[0], id_, error, receipt, now)
        except SkepError as refused:
            if refused.code is not Code.NOT_ENCRYPTED or batch.messages[0].content_type == SEALED_TYPE:
                raise
        batch = await self.seal_batch(batch, [message.queue]) or batch
        return await self._store.quarantine(batch.messages[0], id_, error, receipt, now)

    async def _key_for(self, queue: QueueKey, messages: int) -> DataKey:
        """The key for sealing this many messages. They are deducted from this server's reservation."""
        while True:
            key = self._newest.get(queue)
            if key is not None and (left := self._reserved.get(key.id, 0)) >= messages:
                self._reserved[key.id] = left - messages
                return key
            async with self._making:
                if self._newest.get(queue) is not key or (key and self._reserved.get(key.id, 0) >= messages):
                    continue  # another call reserved or rotated meanwhile
                if key is None or not await self._reserve(key, max(SEALS_RESERVED, messages)):
                    await self._rotate(queue)

    async def _reserve(self, key: DataKey, messages: int) -> bool:
        """Reserve a part of a key's budget, which all servers share; False when it is used up, or the key is gone."""
        sealed = await self._store.reserve_seals(key.id, messages)
        if sealed is None or sealed > MESSAGES_PER_KEY:
            return False
        # The rest of the old reservation is too small for the batch, and is dropped.
        self._reserved[key.id] = messages
        return True

    async def rotate(self, queue: QueueKey) -> DataKey:
        """Make a new key for the new messages of a queue. Its older keys still open older messages."""
        async with self._making:
            return await self._rotate(queue)

    async def _rotate(self, queue: QueueKey) -> DataKey:
        if self._masters is None:
            raise no_master_keys()
        id_, secret = self._ids.mint(), new_secret()
        # Always later than the key before it, whatever the clock says, as the newest key seals.
        made_at = Instant(max(self._clock.now(), self._made_at.get(queue, 0) + 1))
        wrapped = WrappedKey(
            id=id_, queue=queue, master=self._masters.current, wrapped=self._masters.wrap(id_, queue, secret),
            created_at=made_at,
        )  # fmt: skip
        await self._store.put_data_key(wrapped)
        self._made_at[queue] = made_at
        key = self._keys[id_] = self._newest[queue] = DataKey(id_, queue, secret)
        log.info("a queue has a new data key", queue=queue.name, tenant=queue.tenant)
        return key

    async def seal_errors(self, settlements: list[Settlement]) -> list[Settlement]:
        """The settlements to store, with the errors of encrypted queues sealed, as an error may quote a payload."""
        if not self._sealing:
            return settlements
        sealed = list(settlements)
        for index, one in enumerate(settlements):
            if one.error and one.queue in self._sealing:
                key = await self._key_for(one.queue, 1)
                text = (kept_error(one.error) or "").encode()
                id_ = Id(one.seq.to_bytes(16))
                [made] = key.seal([NewMessage(one.queue, text, one.partition, content_type=ERROR_TYPE)], [id_])
                envelope = base64.b64encode(made.payload).decode()
                sealed[index] = msgspec.structs.replace(one, error=SEALED_ERROR + envelope)
        return sealed

    async def open_errors(self, errors: Sequence[StoredError]) -> list[str | None]:
        """The errors, opened. An error that cannot be opened becomes `UNREADABLE_ERROR`."""
        envelopes = [_envelope_of(error) for error, _, _ in errors]
        keys = {Id(envelope[SEALED_KEY]) for envelope in envelopes if envelope is not None}
        if keys:
            await self._load_missing(keys)
        return [
            error if envelope is None else self._open_error(envelope, queue, seq)
            for envelope, (error, queue, seq) in zip(envelopes, errors, strict=True)
        ]

    def _open_error(self, envelope: bytes, queue: QueueKey, seq: Seq | None) -> str:
        try:
            key = self._keys.get(key_of(envelope))
            inside = None if key is None or key.queue != queue else key.open(envelope)
        except SkepError:
            inside = None
        if inside is None or inside.content_type != ERROR_TYPE or seq not in (None, int.from_bytes(inside.id)):
            return UNREADABLE_ERROR
        return inside.payload.decode(errors="replace")

    async def prepare(self, rows: Iterable[EncryptedRow]) -> Sources:
        """Load the keys of these rows, as far as they still exist: another server may have made one just now.

        Returns the source queues of dead letters among the rows that the key of another queue sealed; `open` needs them.
        """
        sealed = [(row, Id(row.payload[SEALED_KEY])) for row in rows if row.content_type == SEALED_TYPE]
        if not sealed:
            return {}
        await self._load_missing({id_ for _, id_ in sealed})
        moved: dict[QueueKey, list[Seq]] = {}
        for row, id_ in sealed:
            key = self._keys.get(id_)
            if key is not None and key.queue != row.queue:
                moved.setdefault(row.queue, []).append(row.seq)
        return await self._sources(moved) if moved else {}

    async def load_missing(self, rows: Iterable[EncryptedRow]) -> None:
        """Read the keys again when these rows need an unknown one."""
        await self._load_missing({Id(row.payload[SEALED_KEY]) for row in rows if row.content_type == SEALED_TYPE})

    async def _load_missing(self, ids: set[Id]) -> None:
        if self._are_known(ids):
            return
        async with self._making:
            if self._are_known(ids):
                return  # another call read them meanwhile
            await self._load()
            # A key is stored before it seals its first message, so a missing key was destroyed.
            destroyed = ids - self._keys.keys()
            if len(self._missing) + len(destroyed) > MISSING_REMEMBERED:
                self._missing.clear()
            self._missing |= destroyed

    def _are_known(self, ids: set[Id]) -> bool:
        """Whether all these keys are loaded, or known to be destroyed."""
        return all(id_ in self._keys or id_ in self._missing for id_ in ids)

    async def _sources(self, moved: Mapping[QueueKey, list[Seq]]) -> Sources:
        found: dict[tuple[QueueKey, Seq], str] = {}
        for queue, seqs in moved.items():
            try:
                letters = await self._store.dead_letters(DeadLetterFilter(queue=queue, seqs=seqs), None, len(seqs))
            except SkepError as error:
                if error.code not in (Code.NOT_A_DEAD_LETTER_QUEUE, Code.QUEUE_NOT_FOUND):
                    raise
                continue  # messages of other queues do not belong there
            found |= {(queue, letter.seq): letter.source_queue for letter in letters}
        return found

    def open(self, row: EncryptedRow, source: str | None) -> tuple[bytes, str | None]:
        """The payload and content type of a message as they were pushed; CANNOT_DECRYPT when the message cannot be opened.

        ``source`` is the recorded source queue of a dead letter.
        """
        if row.content_type != SEALED_TYPE:
            return row.payload, row.content_type
        key = self._keys.get(key_of(row.payload))
        if key is None:
            raise SkepError(Code.CANNOT_DECRYPT, f"the key of a payload of {row.queue.name!r} is not there any more")
        inside = key.open(row.payload)
        if not _belongs(inside, row, key.queue, source):
            raise damaged(row.queue)
        return inside.payload, inside.content_type

    async def open_copies(self, rows: Sequence[EncryptedRow], check: Callable[[QueueKey], None]) -> list[bytes | None]:
        """The payloads of sealed messages that were copied out of the store, into a lake for example; None where one cannot be opened.

        ``check`` raises when the caller may not read the queue whose key is needed. For a dead letter that is its source: a row from
        outside does not prove that it is one.
        """
        await self._load_missing({Id(row.payload[SEALED_KEY]) for row in rows})
        tenants = {row.queue.tenant for row in rows}
        keys = {self._keys[id_] for id_ in {Id(row.payload[SEALED_KEY]) for row in rows} if id_ in self._keys}
        for queue in {key.queue for key in keys if key.queue.tenant in tenants}:
            check(queue)
        return await asyncio.to_thread(lambda: list(map(self._opened_copy, rows)))

    def _opened_copy(self, row: EncryptedRow) -> bytes | None:
        key = self._keys.get(Id(row.payload[SEALED_KEY]))
        try:
            return None if key is None else self.open(row, key.queue.name)[0]
        except SkepError:
            return None

    async def wrapped_keys(self) -> list[WrappedKey]:
        """All keys, wrapped, as the store keeps them."""
        return await self._store.data_keys()

    async def rewrap(self) -> int:
        """Wrap all keys by the current master key; returns how many had another. Messages do not change."""
        kept, masters = await self._store.data_keys(), self._masters
        if not kept:
            return 0
        if masters is None:
            raise no_master_keys()
        by_master: dict[str, list[WrappedKey]] = {}
        for one in kept:
            if one.master != masters.current:
                secret = masters.unwrap(one.master, one.id, one.queue, one.wrapped)
                again = masters.wrap(one.id, one.queue, secret)
                changed = msgspec.structs.replace(one, master=masters.current, wrapped=again)
                by_master.setdefault(one.master, []).append(changed)
        done = [await self._store.rewrap_data_keys(keys, was) for was, keys in by_master.items()]
        return sum(done)

    async def shred(self, tenant: str, queue: str | None) -> int:
        """Destroy the keys of a queue, or of all queues of a tenant: nobody can read their sealed messages again."""
        # Shielded, as a cancelled caller does not stop the store: the keys must be read again only after the store is done.
        return await asyncio.shield(self._shred(tenant, queue))

    async def _shred(self, tenant: str, queue: str | None) -> int:
        async with self._making:
            dropped = self._drop(tenant, queue)
            try:
                gone = await self._store.shred_data_keys(tenant, queue, self._clock.now())
            except Exception:
                # The store may have destroyed the keys and failed afterwards, when it truncated its log for example.
                if await self._is_read_anew() and (destroyed := len(dropped - self._keys.keys())):
                    log.warning("data keys were destroyed", tenant=tenant, queue=queue, keys=destroyed)
                raise
            if gone:
                log.warning("data keys were destroyed", tenant=tenant, queue=queue, keys=gone)
            await self._is_read_anew()
            return gone

    def _drop(self, tenant: str, queue: str | None) -> set[Id]:
        """Drop the keys of a queue or tenant from memory; returns their ids. A later use waits until the keys are read again."""
        dropped = {
            id_ for id_, key in self._keys.items() if key.queue.tenant == tenant and queue in (None, key.queue.name)
        }
        self._keys = {id_: key for id_, key in self._keys.items() if id_ not in dropped}
        self._newest = {key: newest for key, newest in self._newest.items() if newest.id not in dropped}
        for id_ in dropped:
            self._reserved.pop(id_, None)
        return dropped

    async def _is_read_anew(self) -> bool:
        """Whether the keys could be read again. If not, a dropped key is read at its next use."""
        try:
            await self._load()
        except SkepError as error:
            log.warning("data keys cannot be read after a shred", error=str(error))
            return False
        return True


def no_master_keys() -> SkepError:
    """The error for a server without master keys that needs one."""
    return SkepError(
        Code.KEY_UNAVAILABLE,
        "a queue is encrypted, and this server was given no master key: set encryption.master_keys",
    )


def _envelope_of(error: str | None) -> bytes | None:
    """The envelope of a sealed error; None for a plain error."""
    if error is None or not error.startswith(SEALED_ERROR):
        return None
    try:
        return base64.b64decode(error.removeprefix(SEALED_ERROR), validate=True)
    except binascii.Error:
        return b""


def _belongs(inside: Sealed, row: EncryptedRow, queue: QueueKey, source: str | None) -> bool:
    """Whether an envelope belongs to its row: it is in the queue of its key, or among the dead letters of that queue.

    A replayed or published message has a new id, and the trace id that it was sealed with. In a dead-letter queue and in a fifo
    queue, all messages may be in the default partition.
    """
    if inside.id != row.id and inside.trace_id != row.trace_id:
        return False
    if row.queue != queue:
        return source is not None and queue == QueueKey(source, row.queue.tenant)
    return row.partition in (inside.partition, DEFAULT_PARTITION)
