"""`/api/v1/encryption…`: the keys of encrypted queues."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.engine.validate import check_name
from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import ADMIN, ADMIN_SERVER, ADMIN_TENANT
from skep.http.routes.route_table import RouteTable
from skep.ids import id_text
from skep.model.data_key import WrappedKey
from skep.wire.encryption import DataKeysResponse, DataKeyView, Rewrapped, RotateRequest, Shredded, ShredRequest
from skep.wire.times import to_datetime

_decode_rotate = msgspec.json.Decoder(RotateRequest)
_decode_shred = msgspec.json.Decoder(ShredRequest)


ROUTES: RouteTable[Engine] = RouteTable("Encryption")


@ROUTES.route(
    "GET", "/api/v1/encryption/keys", ADMIN_TENANT, "List the keys of encrypted queues",
    answers={200: DataKeysResponse},
)  # fmt: skip
async def list_keys(engine: Engine, call: Call) -> Answer:
    return json_answer(DataKeysResponse([_view(key) for key in await _keys_of(engine, call.tenant)]))


async def _keys_of(engine: Engine, tenant: str, queue: str | None = None) -> list[WrappedKey]:
    every = await engine.encryption.wrapped_keys()
    return [key for key in every if key.queue.tenant == tenant and queue in (None, key.queue.name)]


@ROUTES.route(
    "POST", "/api/v1/encryption/rotate", ADMIN, "Give a queue a new key", request=RotateRequest,
    answers={200: DataKeyView}, example={"queue": "payments"},
)  # fmt: skip
async def rotate(engine: Engine, call: Call) -> Answer:
    queue = await engine.get_queue(call.queue((await call.json(_decode_rotate)).queue))
    if not queue.settings.encryption_enabled:
        raise SkepError(Code.INVALID_REQUEST, f"the queue {queue.key.name!r} is not encrypted")
    await engine.encryption.rotate(queue.key)
    return json_answer(_view((await _keys_of(engine, call.tenant, queue.key.name))[-1]))


@ROUTES.route(
    "POST", "/api/v1/encryption/rewrap", ADMIN_SERVER, "Wrap all keys by the current master key",
    answers={200: Rewrapped},
)  # fmt: skip
async def rewrap(engine: Engine, call: Call) -> Answer:
    rewrapped = await engine.encryption.rewrap()
    call.note(target="all encrypted queues", count=rewrapped)
    return json_answer(Rewrapped(rewrapped))


@ROUTES.route(
    "POST", "/api/v1/encryption/shred", ADMIN_TENANT,
    "Destroy keys, so that what they sealed can never be read again", request=ShredRequest, answers={200: Shredded},
    example={"queue": "payments", "dryRun": True},
)  # fmt: skip
async def shred(engine: Engine, call: Call) -> Answer:
    wanted = await call.json(_decode_shred)
    if (wanted.queue is None) is not wanted.all_queues:
        raise SkepError(Code.INVALID_REQUEST, "name a queue, or say allQueues: one of the two")
    if wanted.queue is not None:
        check_name(wanted.queue)
    target = "all encrypted queues" if wanted.queue is None else f"queue {wanted.queue[:255]}"
    call.note(target=target, dry_run=wanted.dry_run)
    if wanted.dry_run:
        found = len(await _keys_of(engine, call.tenant, wanted.queue))
    else:
        found = await engine.encryption.shred(call.tenant, wanted.queue)
    call.note(target=target, count=found, dry_run=wanted.dry_run)
    if not found and wanted.queue is not None:
        await engine.get_queue(call.queue(wanted.queue))  # a misspelt name must be an error
    return json_answer(Shredded(found))


def _view(key: WrappedKey) -> DataKeyView:
    return DataKeyView(id_text(key.id), key.queue.name, key.master, to_datetime(key.created_at))
