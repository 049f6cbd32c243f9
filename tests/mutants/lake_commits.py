"""Faults of the lake's writers: commits whose answers are lost, two who write, and what is forgotten."""

from __future__ import annotations

from tests.mutants import Mutant

CATALOGS = "tests/spark/test_iceberg_catalogs.py --all"
LAKE = "tests/spark/test_lake.py --all"
FORGET = "tests/spark/test_forget.py --all"
SEVERAL = "tests/spark/test_several_writers.py --all"
TURNS = "tests/spark/test_turns.py"

MUTANTS = [
    Mutant(
        "a refused commit of Iceberg is certain, and its files are deleted",
        "spark/lake/iceberg.py",
        "raise CommitStateUnknownException(str(error)) from error",
        "raise",
        f"{CATALOGS} -k 'answer_is_lost and doubled'",
    ),
    Mutant(
        "Iceberg commits on top of what another run has committed",
        "spark/lake/iceberg.py",
        "if moved or len(old) != len(removed):",
        "if False:",
        f"{CATALOGS} -k 'two_writers and own'",
    ),
    Mutant(
        "files of Iceberg have no names of columns for other readers",
        "spark/lake/iceberg.py",
        "if TableProperties.DEFAULT_NAME_MAPPING not in table.properties:",
        "if False:",
        f"{CATALOGS} -k 'between_making and own'",
    ),
    Mutant(
        "a lake of Iceberg does not remember its catalog",
        "spark/lake/iceberg.py",
        "if self._named is not None:\n            noted",
        "if False:\n            noted",
        f"{CATALOGS} -k stays_in_its_catalog",
    ),
    Mutant(
        "Delta commits the same seqs as another run",
        "spark/lake/delta.py",
        "if any(self._through(newest, queue) != self.through(queue) for queue in change.through):",
        "if False:",
        f"{LAKE} -k 'two_who_write_the_same and delta'",
    ),
    Mutant(
        "Delta compacts files that another run has compacted",
        "spark/lake/delta.py",
        "if not self._still_has(change.removed):",
        "if False:",
        f"{SEVERAL} -k 'replaced and delta'",
    ),
    Mutant(
        "a commit of Delta that is overtaken is not tried again",
        "spark/lake/delta.py",
        "for _ in range(COMMIT_TRIES):",
        "for _ in range(1):",
        f"{SEVERAL} -k 'same_moment and delta'",
    ),
    Mutant(
        "a commit of Iceberg that is overtaken is not tried again",
        "spark/lake/iceberg.py",
        "for _ in range(COMMIT_TRIES):\n                if self._has_committed",
        "for _ in range(1):\n                if self._has_committed",
        f"{SEVERAL} -k 'same_moment and iceberg'",
    ),
    Mutant(
        "who has archived one queue takes over how far another run is with the others, in Delta",
        "spark/lake/delta.py",
        "{**self._known(), **{",
        "{**self._newest_marks(), **{",
        f"{SEVERAL} -k 'another_has_archived_one and delta'",
    ),
    Mutant(
        "who has archived one queue takes over how far another run is with the others, in Iceberg",
        "spark/lake/iceberg.py",
        "table, _changed(self._state, change)",
        "table, _state(table)",
        f"{SEVERAL} -k 'another_has_archived_one and iceberg'",
    ),
    Mutant(
        "old snapshots of Iceberg are kept for ever",
        "spark/lake/iceberg.py",
        "if kept > 0 and len(times) >= 2 * kept:",
        "if False:",
        f"{CATALOGS} -k 'old_snapshots and own'",
    ),
    Mutant(
        "rows that a deletion vector of Delta deletes come back",
        "spark/lake/delta.py",
        "if VECTORS not in (table.protocol().reader_features or ()):",
        "if True:",
        "tests/spark/test_deleted_rows.py --all -k 'beside and delta'",
    ),
    Mutant(
        "a lake that is ahead of a restored server hides the messages of that",
        "spark/lake/united.py",
        "return found is not None and found.through > bounds.last_seq",
        "return False",
        "tests/spark/test_united.py -k restored",
    ),
    Mutant(
        "a pass in an object store commits without its turn",
        "spark/running/keeping.py",
        "            self._turns.take(reach.pass_id, reach.pass_id)\n",
        "            self._turns._newest()\n            self._turns.take(reach.pass_id, reach.pass_id)\n",
        f"{TURNS} --all -k overtaken",
    ),
    Mutant(
        "messages that were forgotten before they came are taken for gone",
        "spark/running/forgetting.py",
        " if latest[queue] <= through[queue]}",
        "}",
        f"{FORGET} -k 'another_run_adds'",
    ),
    Mutant(
        "a refused read of a note is not repeated",
        "spark/lake/place.py",
        "                if self.is_local:\n                    raise\n",
        "                raise\n",
        "tests/spark/test_places.py --all -k small",
    ),
]
