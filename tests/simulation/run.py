"""One simulated run: everything about it follows from its seed."""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from msgspec import structs

from skep.clock import seconds
from skep.model import QueueKey, QueueSettings
from tests.simulation.clients import Client
from tests.simulation.disk import Disk
from tests.simulation.expiry import old_ones, stayed_too_long
from tests.simulation.faults import end_faults, inject
from tests.simulation.loop import SimulatedLoop
from tests.simulation.observer import Observer
from tests.simulation.plan import LEASE_SECONDS, STORE_FAULTS, Ability, Fault, Plan, drawn
from tests.simulation.roles import Operator, Popper, Pusher
from tests.simulation.rules import stamps_fall, too_early, too_late
from tests.simulation.world import World, simulated
from torture.check import check
from torture.history import Call, History, Violation

disk = functools.cache(Disk)
MOVING = {Ability.SEEK, Ability.CLEAR, Ability.PAUSE, Ability.REMAKE}
"""With these a message may be ready and not be for a group, or not now."""


@dataclass(frozen=True)
class Run:
    """What a run showed."""

    seed: int
    plan: Plan
    violations: list[Violation]
    history: History
    steps: int
    trace: int

    @property
    def line(self) -> str:
        """The run in one line, which is the same in every process."""
        return (
            f"seed {self.seed}: {len(self.history.calls)} calls, {self.steps} steps, trace {self.trace:016x}, "
            f"{len(self.violations)} violations"
        )


def run(seed: int) -> Run:
    """The run of a seed."""
    gc.collect(
        0
    )  # what the last run left, as nothing was collected meanwhile: nearly all that a run makes lives until its end
    was_on = gc.isenabled()
    gc.disable()
    loop = SimulatedLoop(Random(seed))
    try:
        with simulated(loop) as errors:
            try:
                return _judged(seed, loop, errors)
            finally:
                loop.bury()
    finally:
        if was_on:
            gc.enable()


def _judged(seed: int, loop: SimulatedLoop, errors: list[str]) -> Run:
    plan = drawn(Random(loop.random.random()))
    history, violations = loop.play(_play(loop, plan))
    violations = [*check(history), *too_early(history), *stamps_fall(history), *old_ones(history), *violations]
    if not (STORE_FAULTS | {Fault.CLOCK}) & set(plan.faults):
        violations += stayed_too_long(history)
    if plan.is_calm and not plan.abilities & MOVING:
        violations += too_late(history)
    violations += [Violation("sound", text) for text in (*loop.failures, *errors)]
    return Run(seed, plan, violations, history, loop.steps, loop.trace)


async def _play(loop: SimulatedLoop, plan: Plan) -> tuple[History, list[Violation]]:
    world = World(loop, plan, disk().emptied())
    try:
        return await _lived(world)
    finally:
        world.close()


async def _lived(world: World) -> tuple[History, list[Violation]]:
    loop, plan, random = world.loop, world.plan, world.loop.random
    observer = Observer(world, "observer", Random(random.random()))
    await observer.start(observer.make_all(plan.queues))
    clients = _workers(world, plan, random)
    working = [client.start(client.work()) for client in clients]
    faults = loop.create_task(inject(world, list(clients), plan.faults, Random(random.random())))
    for task in (*working, faults):
        await task
    end_faults(world)
    await observer.start(observer.drain(plan))
    everybody: list[Client] = [*clients, observer]
    if plan.is_calm:
        observer.found += [Violation("answered", text) for client in everybody for text in client.unanswered]
    return _history(world, everybody), [violation for client in everybody for violation in client.found]


def _workers(world: World, plan: Plan, random: Random) -> list[Pusher | Popper | Operator]:
    workers: list[Pusher | Popper | Operator] = [
        Pusher(world, f"pusher {number}", Random(random.random())) for number in range(plan.pushers)
    ]
    for number, group in enumerate(plan.poppers):
        popper = Popper(world, f"popper {number}", Random(random.random()))
        popper.group = group
        workers.append(popper)
    workers.append(Operator(world, "operator", Random(random.random())))
    for worker in workers:
        worker.plan = plan
    return workers


def _left_out(call: Call) -> Iterator[Call]:
    """Leases of messages that nobody got. With master keys an auto-ack comes after its lease, perhaps too late."""
    for request, result in zip(call.request, call.answer or (), strict=False):
        lease = request.lease_seconds or LEASE_SECONDS
        if request.auto_ack and len(result.deliveries) < request.batch and call.latest_now - call.now >= seconds(lease):
            leased = structs.replace(request, auto_ack=False)
            yield Call("nobody", "pop", call.started, None, call.now, [leased])


def _history(world: World, clients: list[Client]) -> History:
    plan = world.plan
    calls = [call for client in clients for call in client.calls]
    if STORE_FAULTS & set(plan.faults):
        # A pop that was answered with nothing may have leased messages that could not be given back.
        pops = [call for call in calls if call.verb == "pop"]
        calls += [Call("nobody", "pop", call.started, None, call.now, call.request) for call in pops]
    if plan.encrypts:
        calls += [one for call in calls if call.verb == "pop" for one in _left_out(call)]
    settings: dict[QueueKey, QueueSettings] = dict(world.lives.settings(plan.queues))
    if Ability.PAUSE in plan.abilities:
        settings = {queue: structs.replace(one, paused=True) for queue, one in settings.items()}
    return History(calls, settings, drained=True)
