"""The data source `skep` for Spark: it reads the options and makes the reader or writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from skep.errors import Code, SkepError
from skep.spark.garbage import set_aside
from skep.spark.options import INTERNAL, SourceOptions, sink_options, source_options
from skep.spark.schema import ddl, part_of, schema_of, wanted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from skep.spark.typed.rows import TypedRows


class SkepDataSource(DataSource):
    """Queues as tables and streams: `spark.read`, `readStream`, `write` and `writeStream` with `format("skep")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        set_aside()

    @classmethod
    def name(cls) -> str:
        return "skep"

    def schema(self) -> str | StructType:
        """The schema of a read for which the user gave none; for Spark's Java part, the answer to its question."""
        if self.options.get(INTERNAL) is not None:
            from skep.spark.answers import answer

            return answer(self.options, lambda options: _offered(options, _typed(options)))
        options = source_options(self.options)
        return ddl(_offered(options, _typed(options)))

    def reader(self, schema: StructType) -> DataSourceReader:
        from skep.spark.source import MessageReader

        set_aside()
        options = source_options(self.options)
        typed = _typed(options)
        columns = wanted(schema, _offered(options, typed, schema))
        if options.table is not None:
            from skep.spark.tables import TableReader

            return TableReader(options.table, options, columns)
        if options.push_down.by_java:
            from skep.spark.handed import HandingReader

            return HandingReader(options, columns)
        return MessageReader(options, columns, typed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from skep.spark.stream import MessageStream

        options = source_options(self.options)
        for name in ("table", "endingOffsets", "endingTimestamp"):
            if self.options.get(name) is not None:
                raise SkepError(Code.INVALID_REQUEST, f"the option {name} is for spark.read, not for readStream")
        typed = _typed(options)
        return MessageStream(options, wanted(schema, _offered(options, typed, schema)), typed)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from skep.spark.sink import TableWriter, checked

        options = sink_options(self.options)
        checked(schema, options, overwrite)
        return TableWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from skep.spark.sink import StreamWriter, checked

        options = sink_options(self.options)
        checked(schema, options, overwrite)
        return StreamWriter(options)


def _typed(options: SourceOptions) -> TypedRows | None:
    """The message types of a typed read; None when messages are read as they are."""
    if options.spec is None:
        return None
    from skep.spark.link import link
    from skep.spark.typed.declared import subscribed_types
    from skep.spark.typed.rows import TypedRows

    return TypedRows(subscribed_types(link(options.connection), options), options.rejects)


def _offered(options: SourceOptions, typed: TypedRows | None, schema: StructType | None = None) -> pa.Schema:
    """The available columns. With a user's schema, the columns that exist only on request are among them."""
    if options.table is not None:
        from skep.spark.tables import TABLES

        return part_of(TABLES[options.table], options.columns)
    named = options.columns or (schema.fieldNames() if schema is not None else ())
    return schema_of(named) if typed is None else typed.offered(named)
