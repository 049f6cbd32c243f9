"""The steps of the load: each is chosen by a seed of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from torture import app_steps, lives, server_steps
from torture.caller import Caller
from torture.load_client import LoadClient

STEPS: dict[str, tuple[float, Callable[[LoadClient[Caller]], Awaitable[None]]]] = {
    "push": (14, LoadClient.push_one),
    "push_batch": (10, LoadClient.push_batch),
    "push_burst": (3, server_steps.push_burst),
    "push_scheduled": (3, LoadClient.push_scheduled),
    "push_buffered": (3, server_steps.push_buffered),
    "push_misfit": (1, app_steps.push_misfit),
    "push_for_workers": (6, app_steps.push_for_workers),
    "push_for_spark": (10, app_steps.push_for_spark),
    "rewind_workers": (0.7, app_steps.rewind_workers),
    "post_to_hook": (3, app_steps.post_to_hook),
    "transact": (4, LoadClient.transact),
    "pop": (40, LoadClient.pop),
    "pop_namespace": (4, server_steps.pop_namespace),
    "pop_and_ack": (8, server_steps.pop_and_ack),
    "pop_auto_ack": (2, LoadClient.pop_auto_ack),
    "settle_late": (5, LoadClient.settle_late),
    "settle_twice": (2, LoadClient.settle_twice),
    "renew": (3, LoadClient.renew),
    "release": (3, LoadClient.release),
    "seek": (2, LoadClient.seek),
    "clear": (0.5, LoadClient.clear),
    "delete_message": (0.7, LoadClient.delete_message),
    "forget": (1, LoadClient.forget),
    "delete_group": (0.7, LoadClient.delete_group),
    "remake": (0.5, lives.remake),
    "turn": (0.5, lives.turn),
    "rotate": (1, server_steps.rotate),
    "pause": (0.7, server_steps.pause),
    "configure": (1, server_steps.configure),
    "replay": (1, server_steps.replay),
    "purge": (0.5, server_steps.purge),
    "look": (3, server_steps.look),
    "look_at_log": (0.5, server_steps.look_at_log),
}
"""Each step by name: its weight, and what it does."""

BULKY = {"push_batch": 4.0, "push": 0.5}
"""How many times as likely these steps are when batches are large: then most of the time goes into messages, and not into single calls."""
NEEDS = {"push_for_spark": "streamed", "remake": "remade", "turn": "turned", "rotate": "sealed"}
"""Steps that are possible only for those who have a queue of that kind."""


async def do_step(client: LoadClient[Caller], number: int) -> str:
    """Do one step of the plan; its name."""
    client.begin(str(number))
    kinds = {queue.kind for queue in client.queues.all}
    times = BULKY if client.queues.bulk > 1 else {}
    possible = {
        name: weight * times.get(name, 1.0) for name, (weight, _) in STEPS.items() if NEEDS.get(name, "keyed") in kinds
    }
    [name] = client.chance.choices(list(possible), list(possible.values()))
    await STEPS[name][1](client)
    return name
