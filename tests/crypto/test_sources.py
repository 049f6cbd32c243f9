"""Master keys from a file, a variable and a command, and what is said when they cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from skep.crypto.master import new_master_line
from skep.crypto.sources import load_master_keys
from skep.errors import Code, SkepError

LINE = new_master_line("first")
SECRET = LINE.partition(":")[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "master keys"
    path.write_text(LINE + "\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def said(source: str, environment: dict[str, str] | None = None) -> tuple[Code, str]:
    with pytest.raises(SkepError) as refused:
        load_master_keys(source, environment or {})
    assert SECRET not in str(refused.value)
    return refused.value.code, str(refused.value)


def test_a_file(file: Path) -> None:
    assert load_master_keys(f"file:{file}", {}).current == "first"


def test_a_variable() -> None:
    assert load_master_keys("env:KEYS", {"KEYS": LINE}).current == "first"


def test_a_command(file: Path) -> None:
    command = f"command:{sys.executable} -c 'import sys; print(open(sys.argv[1]).read())' '{file}'"
    assert load_master_keys(command, {}).current == "first"


def test_a_file_that_others_can_read_is_not_read(file: Path) -> None:
    file.chmod(0o640)
    code, text = said(f"file:{file}")
    assert code is Code.KEY_UNAVAILABLE
    assert "chmod 600" in text


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    assert said(f"file:{tmp_path}/nothing")[0] is Code.KEY_UNAVAILABLE
    assert said("env:KEYS")[0] is Code.KEY_UNAVAILABLE
    assert said("env:KEYS", {"KEYS": ""})[0] is Code.KEY_UNAVAILABLE
    assert said("command:/nothing/like/it")[0] is Code.KEY_UNAVAILABLE
    assert said("command:")[0] is Code.KEY_UNAVAILABLE
    assert said("command:'")[0] is Code.KEY_UNAVAILABLE


def test_a_command_that_fails_says_why_and_not_what_it_printed() -> None:
    script = f"import sys; print('{SECRET}'); sys.exit('no such key')"
    code, text = said(f'command:{sys.executable} -c "{script}"')
    assert code is Code.KEY_UNAVAILABLE
    assert "no such key" in text


def test_a_key_in_the_place_of_a_source_is_not_repeated() -> None:
    assert said(SECRET)[0] is Code.INVALID_SETTING
    assert said(LINE)[0] is Code.INVALID_SETTING
