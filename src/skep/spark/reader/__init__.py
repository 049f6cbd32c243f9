"""The reader of messages, in Java: its sources, its jar (made by `dev/reader.sh`), and what Spark has to be told to have it."""

from __future__ import annotations

from pathlib import Path

import msgspec

READER_JAR = Path(__file__).parent / "skep-reader.jar"
READER_CATALOG = "skep_messages"
READER_SETTING = f"spark.sql.catalog.{READER_CATALOG}"
READER_CLASS = "skep.spark.MessageFunctions"


def function_name(document: object) -> str:
    """The name of a function of the reader's catalog: a document that says what it is to read."""
    text = msgspec.json.encode(document).decode()
    return f"{READER_CATALOG}.`{text.replace('`', '``')}`"
