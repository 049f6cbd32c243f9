"""Steps with the round's app: messages that fit no type, posts to its webhook, and messages for its workers and for Spark."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from contextlib import suppress

import msgspec
from msgspec import structs

from skep.errors import Code, SkepError
from skep.ids import parse_id
from skep.model import DEFAULT_PARTITION, QUEUE_MODE_GROUP, NewMessage, PushBatch, Start
from skep.wire.webhooks import HookResponse
from skep.worker.posting import Target, post
from torture.app_of_round import SECRET, SIGNATURE_HEADER, hook_path
from torture.caller import Caller
from torture.load_client import LoadClient
from torture.queues import payload_of

POST_SECONDS = 15.0
MOST_POSTS = 6
PAUSE_SECONDS = 0.05
TAKEN = 202


async def push_misfit(client: LoadClient[Caller]) -> None:
    """A push of which one message fits no type: nothing of it may ever be seen."""
    async with client.queues.of_kind["typed"].calling() as key:
        messages = client.messages(key, client.chance.randint(1, 5))
        place = client.chance.randrange(len(messages))
        misfit = messages[place].payload.replace(b'"number":1', b'"number":"one"')
        messages[place] = structs.replace(messages[place], payload=misfit)
        await client.caller.push_in_vain(key, messages)


async def push_for_workers(client: LoadClient[Caller]) -> None:
    queue, fate = client.queues.worked[client.chance.choice(("counted", "sent"))], client.chance.random()
    async with queue.calling() as key:
        messages = client.messages(key, client.chance.randint(1, 10), plain=fate < 0.3)
        await client.caller.push(key, messages, repeats=fate > 0.5)


async def push_for_spark(client: LoadClient[Caller]) -> None:
    fate = client.chance.random()
    async with client.queues.streamed["streamed"].calling() as key:
        messages = client.messages(key, client.chance.randint(1, 40 * client.queues.bulk), plain=fate < 0.3)
        await client.caller.push(key, messages, repeats=fate > 0.5)


async def rewind_workers(client: LoadClient[Caller]) -> None:
    """Have all commands delivered again: what they did, they do not do again."""
    async with client.queues.worked["counted"].calling() as key:
        await client.caller.seek(key, QUEUE_MODE_GROUP, Start())


async def post_to_hook(client: LoadClient[Caller]) -> None:
    """A request from outside, repeated until it is answered, and at times once more; at times with a wrong signature."""
    fate, caller, path = client.chance.random(), client.caller, hook_path(client.queues)
    async with client.queues.of_kind["hooked"].calling() as key:
        body = f'{{"name":"{client.name}"}}'.encode()
        message = NewMessage(key, payload_of(key, client.name, DEFAULT_PARTITION))
        batch = PushBatch([message], caller.mint_ids(1))
        if fate < 0.2:
            await caller.note_in_vain(batch, _post(caller, path, body, "0" * 64))
            return

        def read(answer: HookResponse) -> None:
            batch.ids[0] = parse_id(answer.message_id)

        caller.mark("hook", message.payload)
        posted = await caller.note(
            "accept", [batch], _insist(caller, path, body), read, repeats=True, server=caller.url
        )
        if posted is not None and fate < 0.5:
            with suppress(SkepError):
                await _insist(caller, path, body)  # as senders do whose answer was lost


async def _insist(caller: Caller, path: str, body: bytes) -> HookResponse:
    """Post until there is a good answer, a few times."""
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    for _ in range(MOST_POSTS - 1):
        try:
            return await _post(caller, path, body, signature)
        except SkepError:
            await asyncio.sleep(PAUSE_SECONDS)
    return await _post(caller, path, body, signature)


async def _post(caller: Caller, path: str, body: bytes, signature: str) -> HookResponse:
    headers = {SIGNATURE_HEADER: signature, "Content-Type": "application/json"}
    target = Target.of(f"{caller.url}{path}")
    try:
        async with asyncio.timeout(POST_SECONDS):
            answer = await post(target, target.host, headers, body, context=None)
    except TimeoutError as error:
        raise SkepError(Code.SERVER_UNREACHABLE, "the webhook did not answer") from error
    if answer.status != TAKEN:
        raise SkepError(Code.OVERLOADED, f"the webhook answered {answer.status}: {answer.body.decode()}")
    return msgspec.json.decode(answer.body, type=HookResponse)
