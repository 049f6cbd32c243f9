"""The menu of faults. A fault is a small class in a module of its own; `MENU` names all of them.

A fault is injected at a point of the plan, and is over when `inject` returns: the next steps must find everything well again.
"""

from collections.abc import Iterable

from torture.faults.block import Block
from torture.faults.busy import BusyPostgres
from torture.faults.client import HitClient
from torture.faults.clock import MoveClock
from torture.faults.cut import Cut
from torture.faults.drift import Drift
from torture.faults.driver import HitDriver
from torture.faults.end_sessions import EndSessions
from torture.faults.executor import HitExecutor
from torture.faults.fault import Fault, Prepared
from torture.faults.freeze import FreezePostgres
from torture.faults.full import Full
from torture.faults.half_open import HalfOpen
from torture.faults.kill import Kill
from torture.faults.memory import Memory
from torture.faults.postgres import KillPostgres
from torture.faults.power import Power
from torture.faults.process import HitProcess
from torture.faults.promote import Promote
from torture.faults.promote_async import PromoteAsync
from torture.faults.read_only import ReadOnly
from torture.faults.restart import Restart
from torture.faults.restore import Restore
from torture.faults.sever import Sever
from torture.faults.slow import Slow
from torture.faults.stall import Stall
from torture.faults.stop import Stop
from torture.faults.suspend import Suspend
from torture.faults.sync_fails import SyncFails
from torture.faults.sync_slow import SyncSlow
from torture.faults.vacuum import VacuumPostgres
from torture.faults.worker import HitWorker

MENU: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        Kill(),
        Restart(),
        Stop(),
        Cut(),
        Stall(),
        Slow(),
        HalfOpen(),
        HitClient(),
        HitWorker(),
        HitProcess(),
        HitDriver(),
        HitExecutor(),
        KillPostgres(),
        FreezePostgres(),
        MoveClock(),
        EndSessions(),
        Sever(),
        ReadOnly(),
        SyncFails(),
        Drift(),
        Suspend(),
        Block(),
        Memory(),
        BusyPostgres(),
        VacuumPostgres(),
        Promote(),
        PromoteAsync(),
        Restore(),
        SyncSlow(),
        Full(),
        Power(),
    )
}


OF_ONE_SERVER = frozenset(("kill", "restart"))
"""Outages of one server: where there are several, the others go on."""
LOSING = frozenset(("promote-async",))
"""Faults that lose commits, as documented. `all` leaves them out: a round with one has no queues for which that would mean more than lost messages."""
OF_SEVERAL_PROCESSES = frozenset(("process",))
"""Faults that need a server with several processes (`--workers`)."""
OF_SPARK = frozenset(("driver", "executor"))
"""Faults that need a Spark job (`--spark`): a round with one of them has it. `all` has them only with `--spark`, since Spark takes long to start."""


def layers_of(names: Iterable[str]) -> set[str]:
    """The layers that processes need for these faults."""
    return {layer for name in names for layer in MENU[name].layers}


__all__ = ["LOSING", "MENU", "OF_ONE_SERVER", "OF_SEVERAL_PROCESSES", "OF_SPARK", "Fault", "Prepared", "layers_of"]
