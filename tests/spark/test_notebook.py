"""The notebook runs as it stands, cell by cell, in the session of the tests."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "queue_to_chart.ipynb"


def shown(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: what its last line is worth, if that is an expression."""
    tree = ast.parse(cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_the_notebook_is_kept_without_results() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    assert (notebook["nbformat"], len({cell["id"] for cell in notebook["cells"]})) == (4, len(notebook["cells"]))
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)


@pytest.mark.slow
def test_the_notebook_shows_a_chart_of_its_queue(spark: SparkSession) -> None:
    assert spark is not None
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    results = [shown("".join(cell["source"]), names) for cell in notebook["cells"] if cell["cell_type"] == "code"]

    [chart] = [html() for html in (getattr(one, "_repr_html_", None) for one in results) if html is not None]
    drawn = ElementTree.fromstring(f"<cell>{chart}</cell>")  # which refuses what is not well-formed
    assert [item.text or item[0].tail for item in drawn.iter("li")] == ["DE", "FR", "IT"]
    values = [title.text for circle in drawn.iter("circle") for title in circle]
    assert values == [
        *["DE: 15 orders"] * 12,
        *["FR: 5 orders"] * 4, *["FR: 10 orders"] * 4, *["FR: 15 orders"] * 4,
        *["IT: 10 orders"] * 6,
    ]  # fmt: skip
    assert [line.get("class") for line in drawn.iter("polyline")] == ["line c0", "line c1", *["line c2"] * 3]
