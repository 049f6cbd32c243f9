"""Faults of the readers of lakes and of logs, and of replays from them."""

from __future__ import annotations

from tests.mutants import Mutant

HANDED = "tests/spark/test_handed.py"
READING = "tests/spark/test_lake_push_down.py"
UNITED = "tests/spark/test_united.py -k 'parquet and not travel'"
COMMANDS = "tests/spark/test_old_messages.py"

MUTANTS = [
    Mutant(
        "spark: what Java leaves is read from the beginning",
        "spark/handed.py",
        "QueueStretch(one.queue, one.first, one.last)",
        "QueueStretch(one.queue, 1, one.last)",
        f"{HANDED} -k 'leaves and 60000'",
    ),
    Mutant(
        "spark: for a read without rows Spark starts a process",
        "spark/handed.py",
        "for one in portions or [Portion([])]]",
        "for one in portions]",
        f"{HANDED} -k without_rows",
    ),
    Mutant(
        "spark: Java reads what only Python can",
        "spark/handed.py",
        "        and options.fail_on_shredded\n",
        "",
        f"{HANDED} -k all_values",
    ),
    Mutant(
        "spark: a gap that Java did not look at is forgotten",
        "spark/handed.py",
        "for one in left.parts])",
        "for one in left.parts[:1]])",
        f"{HANDED} -k meanwhile",
    ),
    Mutant(
        "lake: what was forgotten is read until the lake has obeyed",
        "spark/lake/reading.py",
        "return pc.and_not(found, is_forgotten(rows, self.forgotten)) if self.forgotten else found",
        "return found",
        UNITED,
    ),
    Mutant(
        "lake: a row group that begins with a wanted value is left out",
        "spark/lake/reading.py",
        "any(found[0] <= value <= found[1]",
        "any(found[0] < value <= found[1]",
        READING,
    ),
    Mutant(
        "lake: row groups are read whatever their statistics say",
        "spark/lake/reading.py",
        "            if not chosen.may_be_in(opened.metadata.row_group(group)):\n                continue\n",
        "",
        READING,
    ),
    Mutant(
        "lake: all columns of a row group are read before those that decide",
        "spark/lake/reading.py",
        "            if chosen.values and not any(",
        "            if False and not any(",
        READING,
    ),
    Mutant(
        "lake: that of another tenant is read",
        "spark/lake/parquet.py",
        "    if state.tenant != tenant:\n",
        "    if False:\n",
        UNITED,
    ),
    Mutant(
        "lake: of messages between lake and log that are gone nobody says anything",
        "spark/source.py",
        "        offset_ranges.lose(options, offset_ranges.lost(bounds.queue, max(first, there + 1), last))",
        "        return",
        "tests/spark/test_united.py -k gone",
    ),
    Mutant(
        "replay: a repeated one pushes its messages again",
        "spark/lake/pushing_again.py",
        '        return f"replay-{hashlib.sha256(about).hexdigest()[:32]}"\n',
        '        return f"replay-{random.getrandbits(60)}-{len(about)}-{hashlib.__name__}"\n',
        f"{COMMANDS} -k once_for_one_group",
    ),
    Mutant(
        "replay: all groups get what is for one",
        "spark/lake/pushing_again.py",
        "partial(stage, group=self._replay.group)",
        "partial(stage, group=None)",
        f"{COMMANDS} -k once_for_one_group",
    ),
    Mutant(
        "replay: messages that were removed while they were read are passed over",
        "spark/lake/pushing_again.py",
        "!= seqs:\n",
        "== []:\n",
        f"{COMMANDS} -k removed",
    ),
    Mutant(
        "lake forget: messages that are not archived yet are not looked for",
        "spark/running/forgetting.py",
        "    if not new:\n",
        "    if new:\n",
        "tests/spark/test_forget.py -k archived",
    ),
]
