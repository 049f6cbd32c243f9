"""journeys: the way of each trace through the queues, and its outcome.

A hop is a message and a group that reads it. The server does not store which hop pushed a message, but the times tell: a push in
the transaction of an ack has exactly the time of that ack, and any other push falls into the time of work on the previous hop.
Following the causes back from the hop that ended last gives the critical path: the hops that decided how long the journey took.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.model import DeadReason
from skep.spark.pipelines.attempts import attempts, seconds_between

HOP = (
    "created_at", "queue", "seq", "group", "partition", "state", "attempts", "errors", "leased_at", "ended_at",
    "wait_seconds", "work_seconds", "pause_seconds", "tries",
)  # fmt: skip
"""The fields of a hop. The first four give the order."""
TRY = ("position", "leased_at", "settled_at", "outcome")
"""The fields of a try: a delivery that has ended. The position in the lease history tells it from others."""
PLACE = ("trace_id", "queue", "seq", "group")
"""The identity of a hop."""
TRIED = (*PLACE, "partition", "created_at", *TRY)
STEP = ("queue", "seq", "group", "wait_seconds", "work_seconds", "pause_seconds")
TRIES = "array<struct<position:bigint,leased_at:timestamp,settled_at:timestamp,outcome:string>>"
NONE = -1
AGED = -1
"""The position of an expiry, which is not in the lease history."""


def hops(
    messages: DataFrame,
    leases: DataFrame,
    dead_letters: DataFrame | None = None,
    *,
    known: DataFrame | None = None,
    groups: DataFrame | None = None,
) -> DataFrame:
    """One row per message and group that got it or will get it: its state, and the times of waiting and of work.

    ``state`` is `done`, `dead`, `open` (delivered, not completed), `waiting` (not delivered yet), or `unread` where no group
    reads the queue. ``pause_seconds`` is the time between attempts. A group that passed a message in its partition without
    ever getting it has no hop for it (a replayed dead letter is for one group). Only ``dead_letters`` tell which messages expired
    before their delivery.

    ``known`` has the hops of earlier passes; then only newer leases are needed, and some old ones do no harm. Messages whose hops
    are known have `seen` true, if there is such a column. ``groups`` (`queue, group`) are all groups, where these leases do not
    name them all.
    """
    tried = attempts(messages, leases).select(*TRIED)
    if groups is None:
        groups = leases.select("queue", "group").distinct()
    if dead_letters is not None:
        aged = _aged(dead_letters)
        tried = tried.unionByName(aged)
        groups = groups.unionByName(aged.select("queue", "group")).distinct()
    pairs = _pairs(messages, tried, known, F.broadcast(groups))
    found = _tries(tried, known).groupBy(*PLACE).agg(*_told())
    reached = leases.groupBy("queue", "group", "partition").agg(F.max("last_seq").alias("reached_seq"))
    joined = pairs.join(found, [*PLACE], "left").join(reached, ["queue", "group", "partition"], "left")
    meant = F.col("attempts").isNotNull() | F.col("reached_seq").isNull() | (F.col("reached_seq") < F.col("seq"))
    state = (
        F.when(F.col("group").isNull(), "unread")
        .when(F.col("done_at").isNotNull(), "done")
        .when(F.col("died") == 1, "dead")
        .when(F.col("attempts").isNotNull(), "open")
        .otherwise("waiting")
    )
    ended = F.coalesce("done_at", F.when(F.col("died") == 1, F.col("last_at")))
    return (
        joined.where(meant)
        .withColumns({"state": state, "ended_at": ended, "waited_until": F.coalesce("leased_at", ended)})
        .withColumn("wait_seconds", seconds_between("created_at", "waited_until"))
        .withColumn("wait_seconds", F.when(F.col("waited_until").isNotNull(), F.col("wait_seconds")))
        .withColumn("pause_seconds", F.greatest(F.lit(0.0), seconds_between("leased_at", "last_at") - F.col("work_seconds")))
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in ("attempts", "errors")})
        .withColumn("tries", F.coalesce("tries", F.array().cast(TRIES)))
        .select("trace_id", *HOP)
    )  # fmt: skip


def expired(dead_letters: DataFrame) -> DataFrame:
    """The letters that have no lease: of messages that expired while they waited for a group."""
    return dead_letters.where((F.col("reason") == DeadReason.EXPIRED.value) & (F.col("group") != ""))


def _aged(dead_letters: DataFrame) -> DataFrame:
    """Expired messages as tries without a delivery."""
    told = {
        "queue": F.col("source_queue"), "seq": F.col("source_seq"), "position": F.lit(AGED).cast("bigint"),
        "leased_at": F.lit(None).cast("timestamp"), "settled_at": F.col("failed_at"), "outcome": F.lit("dead"),
    }  # fmt: skip
    return expired(dead_letters).withColumns(told).select(*TRIED)


def _pairs(messages: DataFrame, tried: DataFrame, known: DataFrame | None, groups: DataFrame) -> DataFrame:
    """The pairs of message and group that may be a hop."""
    place = ("trace_id", "queue", "seq", "partition", "created_at")
    fresh = messages.where(~F.col("seen")) if "seen" in messages.columns else messages
    pairs = fresh.select(*place).join(groups, "queue", "left").select(*place, "group")
    pairs = pairs.unionByName(tried.select(*place, "group"))
    if known is not None:
        pairs = pairs.unionByName(known.select(*place, "group"))
    read = groups.select("queue").distinct().withColumn("read", F.lit(True))
    unread = F.col("group").isNull() & F.col("read").isNotNull()
    return pairs.distinct().join(F.broadcast(read), "queue", "left").where(~unread).drop("read")


def _tries(tried: DataFrame, known: DataFrame | None) -> DataFrame:
    """Each try once. A known try wins over a fresh one, since the messages that decided its outcome may be gone."""
    fresh = tried.select(*PLACE, *TRY, F.lit(1).alias("rank"))
    if known is not None:
        before = known.select(*PLACE, F.explode("tries").alias("one"))
        fresh = fresh.unionByName(before.select(*PLACE, "one.*", F.lit(0).alias("rank")))
    told = F.struct("rank", *TRY)
    each = fresh.groupBy(*PLACE, F.col("position").alias("place")).agg(F.min(told).alias("one"))
    return each.select(*PLACE, "one.*")


def _told() -> list[Column]:
    done = F.col("outcome") == "completed"
    return [
        F.count("leased_at").cast("int").alias("attempts"),
        F.sum(F.when(done, 0).otherwise(1)).cast("int").alias("errors"),
        F.min("leased_at").alias("leased_at"),
        F.min(F.when(done, F.col("settled_at"))).alias("done_at"),
        F.max("settled_at").alias("last_at"),
        F.max(F.when(F.col("outcome") == "dead", 1).otherwise(0)).alias("died"),
        # Summed in a fixed order, so that the same tries have the same sum to the last bit.
        _work_of(F.array_sort(F.collect_list(F.struct(*TRY)))).alias("work_seconds"),
        F.array_sort(F.collect_list(F.struct(*TRY))).alias("tries"),
    ]


def _work_of(tries: Column) -> Column:
    def took(one: Column) -> Column:
        return F.greatest(F.lit(0.0), (F.unix_micros(one["settled_at"]) - F.unix_micros(one["leased_at"])) / 1e6)

    return F.aggregate(tries, F.lit(0.0), lambda total, one: total + took(one))


def hops_of(found: DataFrame) -> DataFrame:
    """The hops of journeys, one row each."""
    return found.select("trace_id", F.explode("hops").alias("hop")).select("trace_id", "hop.*")


def journeys(
    messages: DataFrame,
    leases: DataFrame,
    dead_letters: DataFrame | None = None,
    *,
    known: DataFrame | None = None,
    groups: DataFrame | None = None,
) -> DataFrame:
    """One row per trace, with its hops in order and its critical path.

    ``state`` is `broken` when a message died and no later message of the same queue, partition and group took its place, `open` when
    a hop is open or waiting, else `done`. ``known`` are the journeys of an earlier pass, which are continued; see `hops`.
    """
    ordered = F.array_sort(F.collect_list(F.struct(*HOP)))
    before = None if known is None else hops_of(known)
    found = hops(messages, leases, dead_letters, known=before, groups=groups)
    traced = found.groupBy("trace_id").agg(ordered.alias("hops"))
    walked = traced.withColumn("causes", _causes()).withColumn("path", _path())
    steps = F.transform("path", lambda place: _step(F.get("hops", place)))
    return (
        walked.withColumn("critical_path", steps)
        .select(
            "trace_id",
            _state().alias("state"),
            F.array_min(F.transform("hops", lambda hop: hop["created_at"])).alias("started_at"),
            F.array_max(F.transform("hops", _end)).alias("ended_at"),
            F.size(F.array_distinct(F.transform("hops", lambda hop: F.struct(hop["queue"], hop["seq"])))).alias("messages"),
            F.array_distinct(F.transform("hops", lambda hop: hop["queue"])).alias("queues"),
            _total(lambda hop: hop["errors"], "int").alias("errors"),
            "hops",
            "critical_path",
            _total(lambda hop: hop["wait_seconds"], "double", "critical_path").alias("wait_seconds"),
            _total(lambda hop: hop["work_seconds"], "double", "critical_path").alias("work_seconds"),
            _total(lambda hop: hop["pause_seconds"], "double", "critical_path").alias("pause_seconds"),
        )
        .withColumn("duration_seconds", seconds_between("started_at", "ended_at"))
    )  # fmt: skip


def slowest(found: DataFrame, count: int = 10) -> DataFrame:
    """The journeys that took longest."""
    return found.orderBy(F.desc("duration_seconds"), "trace_id").limit(count)


def broken(found: DataFrame) -> DataFrame:
    """The broken journeys, the newest first, with the queue of their last dead letter."""
    dead = F.filter("hops", lambda hop: hop["state"] == "dead")
    return (
        found.where(F.col("state") == "broken")
        .withColumn("broken_at", F.element_at(dead, -1)["queue"])
        .orderBy(F.desc("ended_at"), "trace_id")
    )


def by_queue(found: DataFrame) -> DataFrame:
    """The time that critical paths spent in each queue and group, the longest first."""
    steps = found.select("trace_id", F.explode("critical_path").alias("step")).select("trace_id", "step.*")
    return (
        steps.groupBy("queue", "group")
        .agg(
            F.count_distinct("trace_id").alias("journeys"),
            *[F.sum(f"{name}_seconds").alias(f"{name}_seconds") for name in ("wait", "work", "pause")],
        )
        .orderBy(F.desc(F.col("wait_seconds") + F.col("work_seconds") + F.col("pause_seconds")))
    )


def _end(hop: Column) -> Column:
    return F.coalesce(hop["ended_at"], hop["leased_at"], hop["created_at"])


def _causes() -> Column:
    """For each hop, the place of the hop during which it was pushed; NONE where there is no such hop."""

    def cause(hop: Column, place: Column) -> Column:
        before = F.slice("hops", F.lit(1), place)
        begun = F.filter(before, lambda one: one["leased_at"].isNotNull() & (one["leased_at"] <= hop["created_at"]))
        ranked = F.transform(
            begun,
            lambda one: F.struct(
                F.coalesce(one["ended_at"] == hop["created_at"], F.lit(False)),
                (one["ended_at"].isNull() | (one["ended_at"] >= hop["created_at"])),
                one["leased_at"],
                (F.array_position(F.col("hops"), one) - 1).cast("int").alias("place"),
            ),
        )
        return F.coalesce(F.array_max(ranked)["place"], F.lit(NONE))

    return F.transform("hops", cause)


def _path() -> Column:
    """The places of the hops on the critical path: back from the hop that ended last, cause by cause."""
    ends = F.transform("hops", lambda hop, place: F.struct(_end(hop).alias("at"), place.alias("place")))
    last = F.array_max(ends)["place"]
    start = F.struct(F.array(last).alias("path"), F.get("causes", last).alias("at"))

    def back(walked: Column, _: Column) -> Column:
        longer = F.struct(
            F.concat(F.array(walked["at"]), walked["path"]).alias("path"),
            F.coalesce(F.get("causes", walked["at"]), F.lit(NONE)).alias("at"),
        )
        return F.when(walked["at"] == NONE, walked).otherwise(longer)

    return F.aggregate("hops", start, back, lambda walked: walked["path"])


def _step(hop: Column) -> Column:
    return F.struct(*[hop[name].alias(name) for name in STEP])


def _state() -> Column:
    """The state of a journey. A later message of the same queue, partition and group (a replay) replaces a dead hop."""

    def lost(hop: Column) -> Column:
        again = F.exists(
            "hops",
            lambda other: (
                (other["queue"] == hop["queue"])
                & (other["partition"] == hop["partition"])
                & other["group"].eqNullSafe(hop["group"])
                & (other["seq"] > hop["seq"])
            ),
        )
        return (hop["state"] == "dead") & ~again

    unfinished = F.exists("hops", lambda hop: hop["state"].isin("open", "waiting"))
    return F.when(F.exists("hops", lost), "broken").when(unfinished, "open").otherwise("done")


def _total(part: Callable[[Column], Column], kind: str, of: str = "hops") -> Column:
    return F.aggregate(of, F.lit(0).cast(kind), lambda total, hop: total + F.coalesce(part(hop), F.lit(0)).cast(kind))
