"""The faults of a run, at the times that its seed draws."""

from __future__ import annotations

from random import Random

from tests.simulation.clients import Client
from tests.simulation.plan import CLOCK_SECONDS, Fault
from tests.simulation.world import ServerMachine, World

CALLBACKS_MAX = 200
"""A process dies after so many of its callbacks at most: between any two of them."""
ARRIVALS_MAX = 20
"""A connection is cut after so many arrivals of bytes at most: when it is used, so that calls lose their answers."""
FAULTY_SECONDS = 4.0
"""The last fault comes within this time."""


async def inject(world: World, clients: list[Client], faults: list[Fault], random: Random) -> None:
    """Let the faults happen, one after the other."""
    times = sorted(random.random() * FAULTY_SECONDS for _ in faults)
    for at, fault in zip(times, faults, strict=True):
        await world.loop.passed(max(0.0, at - world.loop.time()))
        await _happen(world, clients, fault, random)


async def _happen(world: World, clients: list[Client], fault: Fault, random: Random) -> None:
    server = random.choice(world.servers)
    match fault:
        case Fault.KILL_SERVER:
            server.process.callbacks_left = random.randrange(CALLBACKS_MAX)
        case Fault.KILL_OWNER:
            world.owner.process.callbacks_left = random.randrange(CALLBACKS_MAX)
        case Fault.CUT:
            world.network.arrivals_left = random.randrange(ARRIVALS_MAX)
            world.network.at_last_arrival = lambda stream: stream.cut()
        case Fault.STOP:
            process = random.choice(world.machines).process
            process.stop()
            await world.loop.passed(random.random() * 3)
            process.go_on()
        case Fault.PARTITION:
            pair = (random.choice(clients).process, server.process)
            world.network.weather.cut_pairs.add(pair)
            await world.loop.passed(random.random() * 3)
            world.network.weather.cut_pairs.discard(pair)
        case Fault.AWAY:
            world.network.arrivals_left = random.randrange(ARRIVALS_MAX)
            world.network.at_last_arrival = lambda _: world.network.lose_store()
            await world.loop.passed(random.random() * 3)
            world.network.at_last_arrival = None
            world.network.weather.store_is_away = False
        case Fault.CLOCK:
            world.wall.put(random.choice(CLOCK_SECONDS))
        case Fault.RESTART:
            _restart(world, server)


def _restart(world: World, server: ServerMachine) -> None:
    engine, process = server.engine, server.process
    if engine is not None and not process.dead:

        async def stop() -> None:
            await engine.stop()
            process.kill()

        world.loop.create_task(stop(), context=process.context())


def end_faults(world: World) -> None:
    """From now on all is well."""
    world.network.weather.clear_up()
    world.network.at_last_arrival = None
    world.wall.put(0.0)
    for process in world.loop.processes:
        process.go_on()
        process.callbacks_left = None
