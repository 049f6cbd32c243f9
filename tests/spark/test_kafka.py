"""Who comes from Kafka finds every option of its connector beside ours, and offsets that mean what they mean there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skep.cli.pipeline import missing_for_spark
from skep.errors import SkepError
from skep.spark import environment
from skep.spark.kafka import KAFKA
from skep.spark.options import CONNECTION, SINK, SOURCE, source_options
from skep.spark.schema import schema_of
from skep.spark.session import start_session
from skep.spark.source import MessageReader
from tests.spark.test_losses import Queues, queues

__all__ = ["queues"]  # the fixture

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def read(queues: Queues, **options: str) -> list[int]:
    given = {"url": queues.url, "tenant": queues.tenant, "subscribe": "orders", **options}
    reader = MessageReader(source_options(given, {}), schema_of(("seq",)))
    return [
        seq for part in reader.partitions() for batch in reader.read(part) for seq in batch.column("seq").to_pylist()
    ]


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ({"startingOffsets": '{"orders": 3}'}, [4, 5]),
        ({"startingOffsets": '{"orders": 3}', "offsetMeaning": "kafka"}, [3, 4, 5]),
        ({"startingOffsets": '{"orders": 2}', "endingOffsets": '{"orders": 4}'}, [3, 4]),
        ({"startingOffsets": '{"orders": 2}', "endingOffsets": '{"orders": 4}', "offsetMeaning": "kafka"}, [2, 3]),
        ({"startingOffsets": '{"orders": 0}', "endingOffsets": '{"orders": 6}', "offsetMeaning": "kafka"}, [1, 2, 3, 4, 5]),
        ({"startingOffsets": '{"orders": -2}', "endingOffsets": '{"orders": -1}', "offsetMeaning": "kafka"}, [1, 2, 3, 4, 5]),
    ],
)  # fmt: skip
def test_offsets_mean_the_last_one_behind_or_as_in_kafka_the_next(
    queues: Queues, options: dict[str, str], seqs: list[int]
) -> None:
    queues.client.push("orders", [1, 2, 3, 4, 5])
    assert read(queues, **options) == seqs


def test_offsets_per_partition_are_refused_with_the_form_that_works() -> None:
    with pytest.raises(SkepError, match=r"one number per queue, .*, and none per partition"):
        source_options({"subscribe": "orders", "startingOffsets": '{"orders": {"0": 23}}'}, {})


def test_the_table_of_the_page_has_every_option_of_kafkas_connector_beside_ours() -> None:
    section = PAGE.partition("## Coming from Kafka")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (?:`([^`]+)`|—) \| (.*) \|$", section, re.MULTILINE)
    assert {kafka: (ours or None, about) for kafka, ours, about in rows} == {
        name: tuple(one) for name, one in KAFKA.items()
    }
    assert {one.ours for one in KAFKA.values()} <= {*CONNECTION, *SOURCE, *SINK, None}


def test_a_python_without_spark_is_told_where_spark_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setattr(environment, "find_spec", lambda _: None)

    with pytest.raises(SkepError, match=rf"not installed for .*run `\. {tmp_path}/\.venv/bin/activate` first"):
        start_session()
    assert "pip install 'skep[spark]'" in (missing_for_spark() or "")
    assert "There is an environment" not in environment.cure(["pyspark"], Path("/"))
