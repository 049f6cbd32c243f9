"""dead-letters: dead letters grouped by their error, and the payload fields that set each group apart.

Two errors are the same when they differ only in numbers, ids and quoted texts. A field of the payload sets a group apart when
most letters of the group, and few healthy messages of the same queue, have the same value in it, or a value of the same shape.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

PLACEHOLDERS = (
    (r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", "<id>"),
    (r"'[^']*'|\"[^\"]*\"", "<text>"),
    (r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{16,}\b", "<hex>"),
    (r"\d+(?:[.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)
NO_ERROR = "(no error was given)"
NO_JSON = "(no JSON)"
LONGEST_VALUE = 200
DEPTH = 3
"""The levels of the payload whose fields are compared."""
TREND_PARTS = 12
LEAST_GAP = 0.5
"""A field is named when its share among dead letters is larger by more than this than among healthy messages."""
MOST_FIELDS = 5
SAMPLE_MESSAGES = 10_000
"""The most healthy messages of a queue that are compared, spread over its log."""
FIELDS = "array<struct<field:string,kind:string,value:string,dead_share:double,healthy_share:double>>"


def pattern(error: Column) -> Column:
    """The first line of an error, without what differs from message to message. A traceback may follow that line."""
    text = F.substring_index(F.coalesce(error, F.lit(NO_ERROR)), "\n", 1)
    for regex, word in PLACEHOLDERS:
        text = F.regexp_replace(text, regex, word)
    return F.trim(text)


def fingerprint(error: Column) -> Column:
    """Twelve hexadecimal digits that are the same for errors of one pattern."""
    return F.substring(F.sha2(pattern(error), 256), 1, 12)


def dead_letter_groups(letters: DataFrame, messages: DataFrame | None) -> DataFrame:
    """One row per queue, group and pattern of error, those with most letters first.

    ``messages`` are messages of the letters' queues, if there are any; those that died are left out. ``trend`` counts the letters in twelve equal
    parts of the time from the first letter of all to the last. ``fields`` has the fields that set the group apart.
    """
    # A payload may be any bytes, and readers of the table refuse invalid text.
    letters = _with_valid_text(letters)
    marked = letters.select(
        "*", pattern(F.col("error")).alias("pattern"), fingerprint(F.col("error")).alias("fingerprint")
    )
    at = F.unix_micros("failed_at")
    whole = letters.agg(F.min(at).alias("begin"), F.max(at).alias("end"))
    keys = ["source_queue", "group", "fingerprint"]
    newest = F.max_by(
        F.struct("error", "payload", "message_id", "trace_id", "source_seq"), F.struct("failed_at", "seq")
    )
    grouped = (
        marked.crossJoin(F.broadcast(whole))
        .groupBy(*keys)
        .agg(
            F.first("pattern").alias("pattern"),
            F.count(F.lit(1)).alias("letters"),
            F.count_distinct("partition").alias("partitions"),
            F.collect_set("reason").alias("reasons"),
            F.max("attempts").alias("most_attempts"),
            F.min("failed_at").alias("first_at"),
            F.max("failed_at").alias("last_at"),
            newest.alias("sample"),
            _trend(at).alias("trend"),
        )
    )
    fields = F.array().cast(FIELDS)
    if messages is not None:
        grouped = grouped.join(_apart(marked, _with_valid_text(messages), keys), keys, "left")
        fields = F.coalesce("fields", fields)
    return grouped.withColumn("fields", fields).orderBy(F.desc("letters"), *keys)


def _with_valid_text(rows: DataFrame) -> DataFrame:
    return rows.withColumn("payload", F.make_valid_utf8("payload"))


def most_frequent(found: DataFrame, count: int = 10) -> DataFrame:
    """The errors with most letters."""
    return found.orderBy(F.desc("letters"), "source_queue", "group", "fingerprint").limit(count)


def _trend(at: Column) -> Column:
    """The number of letters in each part of the time from the first letter of all to the last."""
    width = F.greatest(F.lit(1), F.col("end") - F.col("begin")) / TREND_PARTS
    place = F.least(F.lit(TREND_PARTS - 1), F.floor((at - F.col("begin")) / width))
    return F.array(*[F.count_if(place == part).cast("int") for part in range(TREND_PARTS)])


def _apart(marked: DataFrame, messages: DataFrame, keys: list[str]) -> DataFrame:
    """The fields that the letters of a group have in common and healthy messages have not."""
    dead = marked.select("source_queue", "source_seq").distinct()
    healthy = _sampled(
        messages.select(F.col("queue").alias("source_queue"), F.col("seq").alias("source_seq"), "payload")
        .join(F.broadcast(dead.select("source_queue").distinct()), "source_queue", "leftsemi")
        .join(dead, ["source_queue", "source_seq"], "leftanti")
    )
    usual = _features(healthy, ["source_queue"]).withColumnRenamed("count", "healthy_count")
    # Where no healthy message has a feature, its share is 0, provided that there are healthy messages.
    common = (
        _features(marked, keys)
        .join(F.broadcast(_sizes(marked, keys, "size")), keys)
        .join(F.broadcast(_sizes(healthy, ["source_queue"], "healthy_size")), "source_queue")
        .join(usual, ["source_queue", "field", "kind", "value"], "left")
        .withColumn("dead_share", F.col("count") / F.col("size"))
        .withColumn("healthy_share", F.coalesce(F.col("healthy_count") / F.col("healthy_size"), F.lit(0.0)))
        .withColumn("gap", F.col("dead_share") - F.col("healthy_share"))
        .where(F.col("gap") > LEAST_GAP)
    )
    # A field is named once: by its value where that sets the group apart as much as its shape.
    best = Window.partitionBy(*keys, "field").orderBy(F.desc("gap"), F.desc("kind"), "value")
    kept = common.withColumn("among", F.row_number().over(best)).where(F.col("among") == 1)
    named = F.struct((-F.col("gap")).alias("order"), "field", "kind", "value", "dead_share", "healthy_share")
    first = F.slice(F.array_sort(F.collect_list(named)), 1, MOST_FIELDS)
    return kept.groupBy(*keys).agg(F.transform(first, lambda one: one.dropFields("order")).alias("fields"))


def _sampled(healthy: DataFrame) -> DataFrame:
    """A sample of the messages of each queue, the same one every time."""
    spread = Window.partitionBy("source_queue").orderBy(F.xxhash64("source_seq"))
    return healthy.withColumn("place", F.row_number().over(spread)).where(F.col("place") <= SAMPLE_MESSAGES)


def _sizes(rows: DataFrame, keys: list[str], name: str) -> DataFrame:
    """The number of rows."""
    return rows.groupBy(*keys).agg(F.count(F.lit(1)).alias(name))


def _features(rows: DataFrame, keys: list[str]) -> DataFrame:
    """How many rows have each field at all, with each value, and with each shape of a value."""
    unread = F.array(F.struct(F.lit("payload").alias("field"), F.lit(NO_JSON).alias("value")))
    fields = F.filter(
        F.coalesce(_leaves(F.col("payload")), unread), lambda one: F.length(one["value"]) <= LONGEST_VALUE
    )

    def kinds(one: Column) -> Column:
        def feature(kind: str, value: Column) -> Column:
            return F.struct(one["field"].alias("field"), F.lit(kind).alias("kind"), value.alias("value"))

        return F.array(
            feature("value", one["value"]), feature("shape", shape(one["value"])), feature("presence", F.lit("(there)"))
        )

    found = F.flatten(F.transform(fields, kinds))
    flat = rows.select(*keys, F.explode(found).alias("one")).select(*keys, "one.field", "one.kind", "one.value")
    return flat.groupBy(*keys, "field", "kind", "value").count()


def shape(value: Column) -> Column:
    """A value with every run of digits as 9 and every run of letters as a: `12,50` is `9,9`."""
    return F.regexp_replace(F.regexp_replace(value, r"\p{L}+", "a"), r"\d+", "9")


def _leaves(payload: Column) -> Column:
    """The fields of a JSON object with their values as text; null for other JSON. The name of a nested field has a dot."""

    def level(text: Column, before: Column | None, depth: int) -> Column:
        entries = F.map_entries(F.from_json(text, "map<string,string>"))

        def flattened(entry: Column) -> Column:
            name = entry["key"] if before is None else F.concat(before, F.lit("."), entry["key"])
            value = F.coalesce(entry["value"], F.lit("null"))
            leaf = F.array(F.struct(name.alias("field"), value.alias("value")))
            if depth == DEPTH:
                return leaf
            return F.when(value.startswith("{"), F.coalesce(level(value, name, depth + 1), leaf)).otherwise(leaf)

        return F.flatten(F.transform(entries, flattened))

    return level(payload, None, 1)
