"""The Java part of this package: its sources, its jar (made by `dev/jar.sh`), and the Spark settings that load it.

It has a catalog of queues, the push-down of `format("skep")`, a reader of messages, and a local file system that starts no process
for each file.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

JAR = Path(__file__).parent / "skep-spark.jar"
READER_CATALOG = "skep_messages"
READER_SETTING = f"spark.sql.catalog.{READER_CATALOG}"
READER_CLASS = "skep.spark.MessageFunctions"
CATALOG_SETTING = "spark.sql.catalog.skep"
CATALOG_CLASS = "skep.spark.Catalog"
LOCAL_FILES_CLASS = "skep.spark.LocalFiles"
LOCAL_FILES: dict[str, str] = {
    "spark.hadoop.fs.file.impl": LOCAL_FILES_CLASS,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{LOCAL_FILES_CLASS}$InContext",
}
"""Settings of sessions that keep checkpoints and lakes on this machine. The jar must be on the class path from the start."""


def function_name(document: object) -> str:
    """The name of a function in the reader's catalog. The name is itself a JSON document, which says what the function reads."""
    text = msgspec.json.encode(document).decode()
    return f"{READER_CATALOG}.`{text.replace('`', '``')}`"
