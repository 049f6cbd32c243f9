"""The settings of the server, its engine and its HTTP edge, with their defaults.

Every limit has a name here; zero never means "no limit". Each field has a description, which `skep config show` prints, and a
range, which the loader in `skep.config.load` enforces.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

MEBIBYTE = 1024 * 1024
DEFAULT_PORT = 6632

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one request, and of the data that the engine holds for all callers."""

    # limits of one request
    request_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="payloads and headers of one push together; one push is one transaction: a larger one is refused, "
            "never split",
        ),
    ] = 8 * MEBIBYTE
    payload_bytes: Annotated[int, Meta(ge=1, description="the payload of one message")] = 8 * MEBIBYTE
    headers_bytes: Annotated[int, Meta(ge=1, description="the headers of one message, as JSON")] = 16 * 1024
    push_messages: Annotated[int, Meta(ge=1, description="messages in one push or transaction")] = 10_000
    bulk_messages: Annotated[int, Meta(ge=1, description="messages in one bulk push")] = 100_000
    bulk_bytes: Annotated[int, Meta(ge=1, description="payloads of one bulk push together")] = 64 * MEBIBYTE
    pop_messages: Annotated[int, Meta(ge=1, description="messages that one pop may ask for")] = 10_000
    pop_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="payloads and headers that one pop gives together; a pop gives fewer messages, but always one",
        ),
    ] = 32 * MEBIBYTE
    settlements: Annotated[int, Meta(ge=1, description="settlements or renewals in one call")] = 10_000
    page: Annotated[int, Meta(ge=1, description="rows of one page when browsing")] = 10_000
    page_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="states or events of entities, or payloads of dead letters or of a trace, that are read for one answer together; a "
            "page ends with the item that reaches this bound, further entities are not read at once, and a trace has no further payloads",
        ),
    ] = 16 * MEBIBYTE
    # A nack must not fail because of its error text, so a long text is cut and not refused.
    error_characters: Annotated[int, Meta(ge=1, description="a longer error text is cut")] = 8_192
    wait_seconds: Annotated[float, Meta(gt=0, description="how long one pop may wait")] = 300.0

    # limits of the engine
    merged_messages: Annotated[
        int,
        Meta(
            ge=1,
            description="messages in one store call made of several requests, so that the first request need not wait long",
        ),
    ] = 2_000
    merged_bytes: Annotated[int, Meta(ge=1, description="the same in bytes")] = 8 * MEBIBYTE
    waiting_requests: Annotated[
        int, Meta(ge=1, description="requests that may wait for their turn, per queue and verb; one more is refused")
    ] = 10_000
    parked_polls: Annotated[
        int, Meta(ge=1, description="pops that may wait for messages at once; one more is refused")
    ] = 10_000
    logical_queues: Annotated[
        int, Meta(ge=1, description="queues kept ready; beyond that the idle ones used least recently are dropped")
    ] = 10_000
    matching_queues: Annotated[int, Meta(ge=1, description="queues that a pop over a namespace or task looks at")] = (
        1_000
    )
    replay_batch: Annotated[
        int,
        Meta(
            ge=1,
            description="the most dead letters that one transaction replays or purges, or messages that it forgets; fewer when "
            "that would take long",
        ),
    ] = 500
    replays_listed: Annotated[
        int, Meta(ge=1, description="replayed messages that the answer names; the count is always whole")
    ] = 1_000
    chore_rows: Annotated[
        int, Meta(ge=1, description="the most rows that one pass of a chore touches; fewer when that would take long")
    ] = 1_000
    chores_in_flight: Annotated[int, Meta(ge=1, description="chores that run at once")] = 4


class AdmissionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When requests are queued or refused (admission control), so that a spike does not become an outage."""

    enabled: Annotated[bool, Meta(description="whether requests are ever put off or refused because of load")] = True
    push_load: Annotated[
        float,
        Meta(
            ge=0,
            description="the load from which on pushes are queued as operations (1 is a wait of backlog_seconds, 0 queues them all)",
        ),
    ] = 0.7
    push_operations: Annotated[int, Meta(ge=1, description="queued operations from which on pushes are refused")] = (
        10_000
    )
    ack_load: Annotated[float, Meta(ge=0, description="the load from which on acks are queued as operations")] = 0.8
    ack_operations: Annotated[int, Meta(ge=1, description="queued operations from which on acks are refused")] = 50_000
    pop_load: Annotated[float, Meta(ge=0, description="the load from which on pops are refused; they never queue")] = (
        0.95
    )
    release: Annotated[
        float,
        Meta(
            ge=0, lt=0.5, description="a threshold is lifted only when the load is this far below it, to avoid flapping"
        ),
    ] = 0.1
    backlog_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="how long a call may wait: a wait of this long, in the engine or for a connection to the store, is a load of 1",
        ),
    ] = 2.0


class SpoolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pushes are kept on this machine's disk while PostgreSQL is away."""

    enabled: Annotated[
        bool, Meta(description="whether pushes are kept in the data folder while PostgreSQL is away; else they fail")
    ] = True
    max_bytes: Annotated[
        int, Meta(ge=1, description="room for the pushes of one process's spool; one push more is refused with 503")
    ] = 1024 * MEBIBYTE
    free_bytes: Annotated[int, Meta(ge=0, description="room that must stay free on the disk of the spool")] = (
        64 * MEBIBYTE
    )
    store_seconds: Annotated[
        float, Meta(gt=0, description="a store that does not answer for this long counts as away")
    ] = 5.0
    full_seconds: Annotated[
        float, Meta(ge=0, description="how long a spooled push waits for room in its queue before it is given up")
    ] = 60.0
    fault_seconds: Annotated[
        float,
        Meta(ge=0, description="how long a spooled push that fails unexpectedly is tried again before it is given up"),
    ] = 21_600.0
    receipt_seconds: Annotated[
        float, Meta(gt=0, description="how long the store remembers a spooled push, so that it is stored once")
    ] = 7_776_000.0


class BufferSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How pushes of QoS 0 are held in memory."""

    wait_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="a buffered push is stored after this long, unless it says otherwise")
    ] = 100
    messages: Annotated[
        int, Meta(ge=1, le=10_000, description="a push is also stored when its queue has this many buffered messages")
    ] = 100
    max_messages: Annotated[
        int, Meta(ge=1, description="buffered messages of all queues, per process; a push more is refused with 429")
    ] = 100_000
    max_bytes: Annotated[int, Meta(ge=1, description="the same in bytes of payloads and headers")] = 64 * MEBIBYTE
    retry_seconds: Annotated[
        float, Meta(ge=0, description="how long a flush is retried when the store is too busy; then it is lost")
    ] = 10.0


class OperationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How queued calls (operations) are performed, and how long they are kept."""

    drain: Annotated[
        bool, Meta(description="whether this server performs operations; at least one server of a store must")
    ] = True
    timeout_seconds: Annotated[
        float, Meta(gt=0, description="if a server has not performed an operation by then, another server may")
    ] = 30.0
    full_seconds: Annotated[
        float, Meta(ge=0, description="how long an operation waits for room in its queue before it is given up")
    ] = 60.0
    fault_seconds: Annotated[
        float,
        Meta(ge=0, description="how long an operation that fails unexpectedly is tried again before it is given up"),
    ] = 21_600.0
    max_retries: Annotated[
        int,
        Meta(
            ge=0,
            description="how many retries an operation has at least before a full queue or an unexpected failure ends it",
        ),
    ] = 3
    backoff_seconds: Annotated[
        float,
        Meta(
            gt=0, description="first wait after a failure; each later wait is as long as the operation has been failing"
        ),
    ] = 1.0
    max_backoff_seconds: Annotated[float, Meta(gt=0, description="the longest such wait")] = 30.0
    claim_operations: Annotated[int, Meta(ge=1, description="operations that are performed in one transaction")] = 500
    claim_messages: Annotated[int, Meta(ge=1, description="the same in messages")] = 5_000
    claim_bytes: Annotated[int, Meta(ge=1, description="the same in bytes")] = 8 * MEBIBYTE
    look_seconds: Annotated[
        float, Meta(gt=0, description="how often operations are counted and looked for, also of other servers")
    ] = 1.0
    counted: Annotated[int, Meta(ge=1, description="the server counts this many operations at most")] = 100_000
    sweep_seconds: Annotated[float, Meta(gt=0, description="how often operations that have aged out are removed")] = (
        600.0
    )
    completed_seconds: Annotated[float, Meta(gt=0, description="how long completed operations are kept")] = 3_600.0
    failed_seconds: Annotated[float, Meta(gt=0, description="how long failed and cancelled operations are kept")] = (
        604_800.0
    )


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the engine behaves."""

    create_queues_on_push: Annotated[bool, Meta(description="whether a push makes the queue it names")] = True
    shared: Annotated[
        bool,
        Meta(
            description="whether other servers use the same store: then this one listens for their pushes, and does the chores of "
            "their queues, too"
        ),
    ] = False
    safety_poll_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="a waiting pop looks again after this long at the latest, even if nothing woke it; after up to 50 seconds if "
            "no other server uses the store, or if pops wait for so many queues that all would look more than 50 times a second",
        ),
    ] = 5.0
    watch_seconds: Annotated[
        float, Meta(gt=0, description="how long other servers are asked to announce pushes, each time")
    ] = 120.0
    matching_seconds: Annotated[
        float, Meta(gt=0, description="how long the list of a namespace's or task's queues is cached")
    ] = 5.0
    idle_seconds: Annotated[
        float,
        Meta(gt=0, description="a queue that nobody used for this long is dropped from memory, never from the store"),
    ] = 60.0
    sample_seconds: Annotated[
        float, Meta(gt=0, description="how often counters are looked at, for rates and charts; changed ones are stored")
    ] = 10.0
    sweep_seconds: Annotated[float, Meta(gt=0, description="how often data that has aged out is removed")] = 60.0
    maintain_seconds: Annotated[
        float, Meta(gt=0, description="how often the store does its own chores, such as compaction")
    ] = 1.0
    discover_seconds: Annotated[
        float, Meta(gt=0, description="how often queues made by other servers are looked for, when the store is shared")
    ] = 60.0
    follow_seconds: Annotated[
        float, Meta(gt=0, description="how often changes made by other servers are read, when the store is shared")
    ] = 0.5
    staging_seconds: Annotated[
        float, Meta(gt=0, description="staged messages that nobody published are removed after this long")
    ] = 86_400.0
    published_seconds: Annotated[
        float, Meta(gt=0, description="how long the store remembers a published epoch, so that a repeat does nothing")
    ] = 7_776_000.0
    limits: Limits = Limits()
    admission: AdmissionSettings = AdmissionSettings()
    spool: SpoolSettings = SpoolSettings()
    buffer: BufferSettings = BufferSettings()
    operations: OperationSettings = OperationSettings()


class EncryptionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the master key of encrypted queues comes from."""

    master_keys: Annotated[
        str | None,
        Meta(description="file:/path, env:NAME or command:… that gives the master keys, the current one first"),
    ] = None

    def __repr__(self) -> str:
        """Hide ``master_keys``: somebody may have put a key there instead of its place, and a repr ends up in logs."""
        return f"EncryptionSettings(master_keys={None if self.master_keys is None else '***'})"


class HttpLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one connection, and of all connections together."""

    hosts: Annotated[
        str | None,
        Meta(
            description="host names this server answers to, besides localhost and IP addresses, such as "
            "skep.example,*.svc.cluster.local; * is every name. Default: none, or every name where keys are required"
        ),
    ] = None
    # More than the engine's `request_bytes`, since names and JSON around the payloads count here too.
    body_bytes: Annotated[int, Meta(ge=1, description="the body of one request")] = 12 * MEBIBYTE
    bodies_bytes: Annotated[
        int, Meta(ge=1, description="the bodies of all requests together, per process; one more is answered 503")
    ] = 256 * MEBIBYTE
    open_bodies_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="bodies of webhooks, all together, per process: anyone can send one, as the signature is checked "
            "after it has arrived",
        ),
    ] = 32 * MEBIBYTE
    body_seconds: Annotated[float, Meta(gt=0, description="how long a body may take to arrive")] = 30.0
    json_depth: Annotated[int, Meta(ge=8, le=500, description="how deep a payload or another body may be nested")] = 100
    query_parameters: Annotated[int, Meta(ge=1, description="parameters of one query")] = 50
    url_bytes: Annotated[int, Meta(ge=64, description="the path and query of one request")] = 16 * 1024
    headers_bytes: Annotated[int, Meta(ge=256, description="the headers of one request together")] = 32 * 1024
    headers_count: Annotated[int, Meta(ge=4, description="headers of one request")] = 100
    headers_seconds: Annotated[
        float,
        Meta(
            gt=0, description="how long a request's headers may take to arrive, and a new connection to send something"
        ),
    ] = 10.0
    keep_alive_seconds: Annotated[
        float, Meta(gt=0, description="how long a connection may stay open between two requests")
    ] = 75.0
    reader_seconds: Annotated[
        float, Meta(gt=0, description="a client that takes less than 64 KiB of its answer within this long is cut off")
    ] = 60.0
    unsent_answers_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="bytes of answers that clients have not taken yet, per process; beyond it the client that has been slow "
            "for the longest is cut off",
        ),
    ] = 256 * MEBIBYTE
    answers_bytes: Annotated[
        int,
        Meta(
            ge=1,
            description="payloads and headers in answers that are being made or not taken yet, per process; beyond it pops and "
            "reads wait, and are answered 503 when there is no room in time",
        ),
    ] = 256 * MEBIBYTE
    max_connections: Annotated[
        int, Meta(ge=1, description="open connections per process; one more is answered 503")
    ] = 16_384
    peer_connections: Annotated[
        Annotated[int, Meta(ge=1)] | None,  # msgspec takes a bound of a number, not of a union
        Meta(
            description="open connections of one address, per process; one more is answered 429. Default: a quarter of "
            "max_connections. This machine and trusted proxies may have as many as there are"
        ),
    ] = None
    trusted_proxies: Annotated[
        str,
        Meta(
            description="addresses and networks, separated by commas, whose X-Forwarded-For and X-Forwarded-Proto are believed"
        ),
    ] = "127.0.0.0/8,::1"
    pipelined_requests: Annotated[
        int, Meta(ge=1, description="requests that one connection may send ahead of their answers")
    ] = 32
    metrics_queues: Annotated[
        int, Meta(ge=0, description="queues that have figures of their own in the metrics; the others are summed up")
    ] = 200
    metrics_seconds: Annotated[float, Meta(ge=0, description="how long the figures of the metrics are cached")] = 5.0


class AccessSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Access control: keys, tokens and logins."""

    required: Annotated[
        bool | None,
        Meta(
            description="whether a key or token is needed. Default: off loopback (unless insecure); and everywhere, once a key was "
            "made or jwt_algorithms is set, until `skep access open`"
        ),
    ] = None
    requests_per_second: Annotated[
        Annotated[float, Meta(gt=0)] | None,  # msgspec takes a bound of a number, not of a union
        Meta(description="requests that one key or subject may make, per server, unless its key says otherwise"),
    ] = None
    session_seconds: Annotated[
        float, Meta(ge=1, le=31_536_000, description="how long a login to the dashboard lasts at the most")
    ] = 43_200.0
    session_idle_seconds: Annotated[
        float, Meta(ge=1, le=31_536_000, description="a login to the dashboard that nobody used for this long ends")
    ] = 3_600.0
    audit_days: Annotated[float, Meta(gt=0, le=36_500, description="how long the audit log keeps an entry")] = 90.0
    jwt_algorithms: Annotated[
        str | None,
        Meta(
            description="how tokens are signed: HS256, RS256, EdDSA, or RS256,EdDSA; without this setting tokens are refused"
        ),
    ] = None
    jwt_keys: Annotated[
        str | None,
        Meta(
            description="where the keys of tokens are: a file with a public key (PEM), a set (JWKS) or the secret of HS256, or "
            "the https URL of a set"
        ),
    ] = None
    jwt_issuer: Annotated[str | None, Meta(description="the iss that tokens must have")] = None
    jwt_audience: Annotated[str | None, Meta(description="the aud that tokens must have")] = None
    jwt_claim: Annotated[str, Meta(min_length=1, description="the claim that says what a token grants")] = "skep"
    jwt_leeway_seconds: Annotated[float, Meta(ge=0, le=60, description="how far the issuer's clock may be off")] = 10.0
    jwt_life_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=315_360_000,
            description="how long a token may be valid, from its iat or else from now; one that is valid for longer is refused",
        ),
    ] = 86_400.0
    jwt_keys_seconds: Annotated[
        float, Meta(ge=1, le=86_400, description="how long the keys of tokens are cached before they are read anew")
    ] = 300.0


class TelemetrySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the server tells of itself to others."""

    otlp: Annotated[
        bool,
        Meta(
            description="whether spans and metrics are sent to a collector of OpenTelemetry, which the variables OTEL_EXPORTER_OTLP_… "
            "name; it needs the extra `otlp`"
        ),
    ] = False


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of `skep serve`."""

    store: Annotated[
        str | None,
        Meta(
            description="where messages are kept: a path, :memory: or postgresql://…. Default: skep.db in the data folder"
        ),
    ] = None
    store_connections: Annotated[
        int, Meta(ge=2, le=1_000, description="connections to PostgreSQL, per worker; one more is for notices")
    ] = 10
    log_cache_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="memory of each worker for logs in PostgreSQL that were read as Arrow, kept for the next reader and freed "
            "after five minutes without one. 0 keeps nothing",
        ),
    ] = 512 * MEBIBYTE
    data_folder: Annotated[
        str, Meta(description="the folder of the SQLite file and of the spool; made when it is missing")
    ] = "skep-data"
    host: Annotated[str, Meta(description="the address or name to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535, description="the port to listen on; 0 takes a free one")] = DEFAULT_PORT
    queen_port: Annotated[
        Annotated[int, Meta(ge=0, le=65_535)] | None,  # msgspec takes a bound of a number, not of a union
        Meta(
            description="a second port, for clients of the message queue Queen; 0 takes a free one. Default: they are not served"
        ),
    ] = None
    insecure: Annotated[
        bool,
        Meta(description="as long as no key exists, ask nobody for one, off loopback, too: anyone may do anything"),
    ] = False
    require_secrets: Annotated[
        bool, Meta(description="refuse to start while the environment lacks a secret that an applied app names")
    ] = True
    workers: Annotated[
        int, Meta(ge=1, le=256, description="processes that share the port; more than 1 needs PostgreSQL or a file")
    ] = 1
    drain_seconds: Annotated[float, Meta(ge=0, description="how long a stop waits for requests that are under way")] = (
        30.0
    )
    log_level: Annotated[LogLevel, Meta(description="the least that is logged; debug logs every request")] = "info"
    dashboard: Annotated[
        bool, Meta(description="whether the dashboard is served at /; it needs the extra `dashboard`")
    ] = True
    path_prefix: Annotated[
        str,
        Meta(
            pattern=r"^(/[A-Za-z0-9._~-]{1,64}){0,8}$",
            description="the path under which a proxy serves this server. The proxy removes it from requests; links of the "
            "dashboard and queue URLs of Amazon SQS begin with it, or with the X-Forwarded-Prefix of a request",
        ),
    ] = ""
    log_format: Annotated[
        LogFormat, Meta(description="console, json (one object per line), or auto: console on a terminal, else json")
    ] = "auto"
    engine: EngineSettings = EngineSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    http: HttpLimits = HttpLimits()
    access: AccessSettings = AccessSettings()
    telemetry: TelemetrySettings = TelemetrySettings()

    def __repr__(self) -> str:
        """Hide ``store``: its URL may have a password."""
        told = {name: getattr(self, name) for name in self.__struct_fields__ if name != "store"}
        return f"ServerSettings({', '.join(f'{name}={value!r}' for name, value in told.items())})"
