"""The intermediate representation (IR) of a spec, the same for every input format. Plain structs that compare by content.

Parts are kept by name. Expressions are text; `skep.spec.validate` checks them against the types. The structs have no lines and
columns: the spans of parts are kept beside the IR, by path (see `skep.spec.problems`).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.model import QueueChanges
from skep.spec.types import Field

DAY_SECONDS = 86_400.0
WEBHOOK_TOLERANCE_SECONDS = 300.0
DELIVER_TIMEOUT_SECONDS = 15.0

Fields = dict[str, Field]
Expressions = dict[str, str]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The base of all parts: immutable, and strict about unknown names."""


class ExtraFields(StrEnum):
    """What happens to a message with fields that its type does not declare."""

    REFUSE = "refuse"
    ALLOW = "allow"


class OnInvalid(StrEnum):
    """What happens to a message that does not fit its type: the push is refused, or it becomes a dead letter."""

    REFUSE = "refuse"
    QUARANTINE = "quarantine"


class OnFail(StrEnum):
    """What a pipeline does with a row that fails a check: count it, quarantine it, or let the run fail."""

    WARN = "warn"
    DROP = "drop"
    FAIL = "fail"


class Fairness(StrEnum):
    """The unit that gets an equal share of a queue's workers."""

    TENANT = "tenant"


class EventMode(StrEnum):
    """How a delivery is a CloudEvent: attributes as headers, or all in the body."""

    BINARY = "binary"
    STRUCTURED = "structured"


class IdempotencySource(StrEnum):
    """The source of the deduplication key: an expression, a header, the hash of the body, or none."""

    KEY = "key"
    HEADER = "header"
    BODY = "body"
    NONE = "none"


class Idempotency(_Part, frozen=True):
    """How duplicates are recognised, and for how long. ``value`` is the expression, or the header's name."""

    source: IdempotencySource
    value: str = ""
    window_seconds: float = DAY_SECONDS


class CommandCall(_Part, frozen=True):
    """A command to run, with expressions for its input."""

    entity: str
    command: str
    fields: Expressions = {}


class Then(_Part, frozen=True):
    """A message to push to another queue when a message is done, if ``when`` holds."""

    queue: str
    fields: Expressions = {}
    when: str | None = None


class Deliver(_Part, frozen=True):
    """An outbound webhook: the URL that messages are posted to, or the environment variable that holds it.

    ``headers_env`` names a variable for each header with a secret value. Several secrets are for rotation: each of them signs.
    With ``cloudevents`` each message is sent as an event.
    """

    url: str = ""
    url_env: str | None = None
    headers: dict[str, str] = {}
    headers_env: dict[str, str] = {}
    secret_env: list[str] = []
    timeout_seconds: float = DELIVER_TIMEOUT_SECONDS
    cloudevents: EventMode | None = None


class RateLimit(_Part, frozen=True):
    """At most ``count`` messages in ``per_seconds``: for each value of ``key``, or for the whole queue."""

    count: int
    per_seconds: float
    key: str | None = None


class Check(_Part, frozen=True):
    """A quality check of a queue's messages, and what happens to messages that fail it."""

    holds: str
    on_fail: OnFail = OnFail.WARN


class Queue(_Part, frozen=True):
    """A queue. Without a ``message_type`` it takes any JSON. ``settings`` are the engine's; unset ones stay as they are."""

    message_type: Fields = {}
    extra_fields: ExtraFields = ExtraFields.REFUSE
    on_invalid: OnInvalid = OnInvalid.REFUSE
    settings: QueueChanges = QueueChanges()
    key: str | None = None
    idempotency: Idempotency | None = None
    map_to: CommandCall | None = None
    then: list[Then] = []
    deliver: Deliver | None = None
    rate_limit: RateLimit | None = None
    fairness: Fairness | None = None
    concurrency: int | None = None
    batch: int | None = None
    checks: dict[str, Check] = {}


class Scheme(StrEnum):
    """How the sender of a webhook authenticates."""

    NONE = "none"
    HMAC = "hmac"
    STANDARD_WEBHOOKS = "standard_webhooks"
    PAGERDUTY = "pagerduty"
    GITHUB = "github"
    STRIPE = "stripe"
    SLACK = "slack"


class Encoding(StrEnum):
    """The encoding of a signature."""

    HEX = "hex"
    BASE64 = "base64"


class Algorithm(StrEnum):
    """The hash under an HMAC."""

    SHA256 = "sha256"
    SHA512 = "sha512"
    SHA1 = "sha1"


class Verify(_Part, frozen=True):
    """How signatures are verified. Header, prefix, encoding and algorithm belong to a plain hmac only."""

    scheme: Scheme
    secret_env: list[str] = []
    header: str | None = None
    prefix: str = ""
    encoding: Encoding = Encoding.HEX
    algorithm: Algorithm = Algorithm.SHA256
    tolerance_seconds: float = WEBHOOK_TOLERANCE_SECONDS


class TenantSource(StrEnum):
    """Where a webhook finds its tenant."""

    PATH = "path"
    HEADER = "header"
    KEY = "key"


class Tenant(_Part, frozen=True):
    """The tenant of a webhook's message: the last part of the path, the value of a header, or an expression over the body.

    Every signature covers the body, hardly any a header, and none the path.
    """

    source: TenantSource
    header: str | None = None
    key: str | None = None


class Webhook(_Part, frozen=True):
    """An address for messages from outside, which go to a queue or run a command.

    ``message`` makes the pushed message; by default it has the payload, the kept headers, the source ip and the time. Without
    ``keep_headers`` the harmless headers are kept (see `skep.spec.kept_headers`).
    """

    queue: str | None = None
    command: CommandCall | None = None
    verify: Verify | None = None
    idempotency: Idempotency | None = None
    keep_headers: list[str] | None = None
    tenant: Tenant | None = None
    message: Expressions = {}


class Emit(_Part, frozen=True):
    """An event that a command appends if ``when`` holds, with expressions for its fields."""

    event: str
    fields: Expressions = {}
    when: str | None = None


class Command(_Part, frozen=True):
    """A command on an entity: its input type, a guard that must hold, and the events that it emits."""

    input: Fields = {}
    guard: str | None = None
    emits: list[Emit] = []


class Entity(_Part, frozen=True):
    """A thing with a state, which is the fold of its events. An event assigns expressions to fields of the state."""

    id: str
    state: Fields = {}
    commands: dict[str, Command] = {}
    events: dict[str, Expressions] = {}


class Schedule(_Part, frozen=True):
    """A message that is pushed at the times of a cron expression."""

    cron: str
    queue: str
    message: Expressions = {}
    timezone: str = "UTC"


class App(_Part, frozen=True):
    """A whole spec."""

    name: str
    queues: dict[str, Queue] = {}
    webhooks: dict[str, Webhook] = {}
    entities: dict[str, Entity] = {}
    schedules: dict[str, Schedule] = {}
