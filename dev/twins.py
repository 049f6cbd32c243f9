"""Writes the client for threads from the client for asyncio, so that there is one source and the two cannot drift apart.

`python dev/twins.py` writes the files; `tests/client/test_twins.py` fails when somebody forgot to.
"""

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parent.parent / "src" / "skep" / "client"
RUFF = Path(sys.executable).parent / "ruff"
SOURCES = sorted(CLIENT.glob("async_*.py"))

WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bimport asyncio\b", "import time"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bAsyncTransport\b", "SyncTransport"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\basync_(?=[a-z])", ""),
    (r"for asyncio", "for threads"),
    (r"\ban ``with``", "a ``with``"),
    (r"\ban asynchronous\b", "a"),
    (r"``async with``", "``with``"),
    (r"an ``with``", "a ``with``"),
]


def twin_of(source: Path) -> Path:
    """Where the twin of a source is."""
    return source.with_name(source.name.removeprefix("async_"))


def translated(source: Path) -> str:
    """The twin's text."""
    text = source.read_text(encoding="utf-8")
    for pattern, replacement in WORDS:
        text = re.sub(pattern, replacement, text)
    text = f"# Written by dev/twins.py from {source.name}: change that, and run it.\n\n{text}"
    for command in (["check", "--select", "I,UP028", "--fix-only", "--unsafe-fixes", "--quiet"], ["format", "--quiet"]):
        arguments: list[str | Path] = [RUFF, *command, "--stdin-filename", twin_of(source), "-"]
        text = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> None:
    for source in SOURCES:
        twin_of(source).write_text(translated(source), encoding="utf-8")


if __name__ == "__main__":
    main()
