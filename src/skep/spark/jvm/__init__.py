"""What this package has in Java: its sources, its jar (made by `dev/jar.sh`), and what Spark has to be told to have it.

There is a reader of messages, and there are local files without a process for each.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

JAR = Path(__file__).parent / "skep-spark.jar"
READER_CATALOG = "skep_messages"
READER_SETTING = f"spark.sql.catalog.{READER_CATALOG}"
READER_CLASS = "skep.spark.MessageFunctions"
LOCAL_FILES_CLASS = "skep.spark.LocalFiles"
LOCAL_FILES: dict[str, str] = {
    "spark.hadoop.fs.file.impl": LOCAL_FILES_CLASS,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{LOCAL_FILES_CLASS}$InContext",
}
"""For sessions that keep checkpoints and lakes on this machine, and have the jar on their class path from the start."""


def function_name(document: object) -> str:
    """The name of a function of the reader's catalog: a document that says what it is to read."""
    text = msgspec.json.encode(document).decode()
    return f"{READER_CATALOG}.`{text.replace('`', '``')}`"
