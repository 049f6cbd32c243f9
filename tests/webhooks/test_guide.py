"""The specs of the guide are right, and laid out as `fmt` would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from skep.spec import check, format_spec

PAGE = Path(__file__).resolve().parents[2] / "docs/webhooks.md"
SPECS = re.findall(r"^```skep\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", SPECS, ids=range(len(SPECS)))
def test_a_spec_of_the_guide_is_right(text: str) -> None:
    assert check(text, "docs/webhooks.md").rendered == []
    assert format_spec(text) == text
