"""What a seed draws for its run: servers, queues, clients, and which faults and calls there are at all.

Each run has only some of the faults and some of the calls. A mixture of everything would hide what only a rare mixture shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from skep.config import EngineSettings
from skep.config.settings import AdmissionSettings, OperationSettings, SpoolSettings
from skep.model import DEFAULT_PARTITION, Ordering, QueueChanges, QueueKey, QueueSettings
from tests.simulation.network import Weather

GROUPS = ("g", "h")
NAMESPACE = "simulated"
SAFETY_POLL_SECONDS = 3.0
NEVER_SECONDS = 100_000.0
CLOCK_SECONDS = (-200.0, -3.0, -0.4, 0.0, 0.4, 3.0, 200.0)
"""By how much the wall clock is ahead when it is set: so little that it is slewed, or so much that it steps."""
SAMPLE_SECONDS = 30.0
AGING = (
    QueueChanges(max_wait_seconds=1.5),
    QueueChanges(max_age_seconds=1.5),
    QueueChanges(retention_seconds=1.5),
    QueueChanges(retention_seconds=1.5, retention_ignores_groups=True),
    QueueChanges(completed_retention_seconds=0.5),
)
"""Settings by which messages expire, or leave the log."""

LEASE_SECONDS = 2.0
"""How long a lease lasts when the pop does not say."""


class Fault(StrEnum):
    """What happens to machines, besides the weather of the network."""

    KILL_SERVER = "a server dies, and is started again without its memory"
    KILL_OWNER = "the process that has the file dies, and is started again with what was committed"
    CUT = "the connection of a server to the store is cut"
    STOP = "a process stands still for a while"
    PARTITION = "a client and a server do not reach each other for a while"
    RESTART = "a server is stopped in order, and started again"
    AWAY = "no server reaches the store for a while"
    CLOCK = "the wall clock is set, ahead or back"


class Ability(StrEnum):
    """What clients do, besides pushing, popping and acking."""

    REPEAT = "push with transaction ids, and again"
    SCHEDULE = "push for later"
    BUFFER = "push with QoS 0"
    LONG_POLL = "wait for messages"
    PARTITION = "pop from one partition"
    NAMESPACE = "pop from all queues of a namespace"
    AUTO_ACK = "pop and ack at once"
    FAIL = "nack and reject"
    FORGET = "let leases run out, and come back too late"
    RENEW = "renew leases"
    RELEASE = "give leases back"
    WHOLE = "ack whole leases"
    TOGETHER = "ack with the next pop"
    TRANSACT = "ack and push in a transaction"
    SEEK = "move groups"
    CLEAR = "clear queues"
    PAUSE = "pause and resume queues"
    CHANGE = "change settings"
    REPLAY = "replay dead letters"
    REMAKE = "delete queues, and make them again"
    ENCRYPT = "have queues encrypted, and give them new keys"
    LOOK = "look at figures and logs"


STORE_FAULTS = {Fault.KILL_SERVER, Fault.KILL_OWNER, Fault.CUT, Fault.RESTART, Fault.AWAY}
"""After these a lease may stay that no client knows of."""


@dataclass(frozen=True)
class Plan:
    """The plan of a run."""

    is_calm: bool
    """Whether nothing is lost or late, so that every call must be answered and every signal must come."""
    weather: Weather
    faults: list[Fault]
    abilities: frozenset[Ability]
    servers: int
    queues: dict[QueueKey, QueueSettings]
    partitions: dict[QueueKey, list[str]] = field(repr=False)
    pushers: int
    poppers: list[str]
    """The group of each popper."""
    queues_operations: bool
    """Whether pushes of one partition are queued as operations (202), and acks too."""
    encrypts: bool
    """Whether the servers have master keys."""
    spools: bool
    """Whether servers take pushes while the store is away."""
    skew_seconds: float
    """By how much the clock of a process may always be off."""

    @property
    def most_off_seconds(self) -> float:
        """No clock is ever off by more."""
        return self.skew_seconds + (max(CLOCK_SECONDS) if Fault.CLOCK in self.faults else 0.0)

    @property
    def engine(self) -> EngineSettings:
        """Timers that cost nothing while nothing happens. In a calm run no waiting pop looks again without a signal."""
        return EngineSettings(
            shared=True,
            create_queues_on_push=Ability.REMAKE not in self.abilities,
            safety_poll_seconds=NEVER_SECONDS if self.is_calm else SAFETY_POLL_SECONDS,
            follow_seconds=4.0,
            maintain_seconds=60.0,
            sample_seconds=SAMPLE_SECONDS,
            admission=AdmissionSettings(push_load=0.0, ack_load=0.0, pop_load=1_000.0)
            if self.queues_operations
            else AdmissionSettings(enabled=False),
            spool=SpoolSettings(free_bytes=0),
            operations=OperationSettings(look_seconds=2.0 if self.queues_operations else 10.0, timeout_seconds=5.0),
        )


def drawn(random: Random) -> Plan:
    """A plan."""
    weather, faults = Weather(), list[Fault]()
    is_calm = random.random() < 0.25
    if not is_calm:
        weather = Weather(
            lost_requests=random.choice((0.0, 0.0, 0.05)),
            lost_answers=random.choice((0.0, 0.05, 0.2)),
            slow=random.choice((0.0, 0.0, 0.05)),
        )
        kinds = [fault for fault in Fault if random.random() < 0.3]
        faults = [random.choice(kinds) for _ in range(random.randrange(1, 5))] if kinds else []
    spools = not is_calm and random.random() < 0.3
    if spools:
        # What was tried before it was spooled is looked for around the time of the try, which the clock must not leave by far.
        faults = [Fault.AWAY, Fault.AWAY, *(fault for fault in faults if fault is not Fault.CLOCK)]
    elif not is_calm and random.random() < 0.2:
        faults += [Fault.CLOCK, Fault.CLOCK]
    encrypts = random.random() < 0.2
    queues = {QueueKey(f"q{number}"): _settings(random, encrypts) for number in range(random.choice((1, 2)))}
    names = [f"p{number}" for number in range(random.choice((1, 2, 4)))]
    return Plan(
        is_calm,
        weather,
        faults,
        _abilities(random, is_calm, spools),
        random.choice((1, 2, 2, 3)),
        queues,
        {key: [DEFAULT_PARTITION] if one.ordering is Ordering.FIFO else names for key, one in queues.items()},
        random.choice((1, 2)),
        random.choice((["g"], ["g", "g"], ["g", "h"], ["g", "g", "g"], ["g", "g", "h"])),
        queues_operations=random.random() < 0.15,
        encrypts=encrypts,
        spools=spools,
        skew_seconds=0.0 if is_calm else random.choice((0.0, 0.0, 0.3)),
    )


def _abilities(random: Random, is_calm: bool, spools: bool) -> frozenset[Ability]:
    """What clients can do. What is spooled may be stored in the next life of its queue, and is overtaken by transactions, which are never
    spooled, when the store is back before the server knows it: PostgreSQL refuses calls until then, the store for workers does not.
    """
    found = {ability for ability in Ability if random.random() < 0.4}
    not_together = {Ability.REMAKE, Ability.TRANSACT} if spools else set()
    return frozenset((found | ({Ability.LONG_POLL} if is_calm else set())) - not_together)


def _settings(random: Random, encrypts: bool) -> QueueSettings:
    settings = QueueSettings(
        namespace=NAMESPACE,
        ordering=random.choice((Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED)),
        max_attempts=random.choice((0, 0, 3)),
        lease_seconds=LEASE_SECONDS,
        initial_backoff_ms=100,
        max_backoff_ms=1_000,
        encryption_enabled=encrypts and random.random() < 0.6,
    )
    return random.choice(AGING).apply(settings) if random.random() < 0.3 else settings
