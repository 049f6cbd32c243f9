"""Specs by the command line, without a server: all that is wrong is told at once, and files are laid out in place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Command

ROOT = Path(__file__).resolve().parents[2]
WRONG = """app Orders {
  queue Placed {
    message_type { total: float }
    key: totl
    delivery { max_atempts: 5 }
  }
}
"""
UNTIDY = "app A {   // mine\nqueue B {retention{max_depth:10}}\n}\n"
TIDY = "app A {  // mine\n  queue B {\n    retention {\n      max_depth: 10\n    }\n  }\n}\n"


@pytest.fixture
def alone(tmp_path: Path) -> Command:
    """The command where there is no server."""
    return Command("http://127.0.0.1:9", "default")


def test_check_tells_everything_at_once_with_line_column_caret_and_what_was_expected(
    alone: Command, tmp_path: Path
) -> None:
    (tmp_path / "orders.skep").write_text(WRONG)
    (tmp_path / "fine.skep").write_text(TIDY)
    ended = alone("spec", "check", str(tmp_path / "orders.skep"), str(tmp_path / "fine.skep"))
    assert ended.code == 1
    lines = ended.out.splitlines()
    assert lines[0].endswith("orders.skep:4:10: error: there is no field 'totl' here")
    assert lines[1] == "    4 |     key: totl"
    assert lines[2] == "      |          ^ expected total?"
    assert lines[3].endswith("orders.skep:5:16: error: there is no 'max_atempts' in delivery")
    assert lines[-1].endswith("fine.skep: nothing is wrong")


def test_check_as_json_is_for_programs(alone: Command) -> None:
    ended = alone("spec", "check", "-o", "json", "-", stdin=WRONG)
    assert ended.code == 1
    found = json.loads(ended.out)
    assert [(one["problem"]["line"], one["problem"]["column"]) for one in found] == [(4, 10), (5, 16)]


def test_check_takes_the_three_ways_to_write_a_spec_and_lets_warnings_pass(alone: Command, tmp_path: Path) -> None:
    as_json = alone("spec", "export", str(ROOT / "examples/incidents.skep"))
    (tmp_path / "incidents.json").write_text(as_json.out)
    (tmp_path / "open.toml").write_text('name = "A"\n[queues.Q]\n[webhooks.W]\nqueue = "Q"')
    ended = alone("spec", "check", str(tmp_path / "incidents.json"), str(tmp_path / "open.toml"))
    assert ended.code == 0
    assert "warning" in ended.out
    assert ended.out.splitlines()[-1].endswith("0 errors, 1 warning")


def test_check_does_not_let_a_file_steer_the_terminal(alone: Command) -> None:
    ended = alone("spec", "check", "-", stdin="app A {\n  queue \x1b[31mB {\n}\n")
    assert ended.code == 1
    assert "\x1b" not in ended.out


def test_fmt_lays_out_in_place_and_keeps_comments_and_rights(alone: Command, tmp_path: Path) -> None:
    file = tmp_path / "a.skep"
    file.write_text(UNTIDY)
    file.chmod(0o640)
    link = tmp_path / "link.skep"
    link.symlink_to(file)

    assert alone("spec", "fmt", "--check", str(link)).code == 1
    assert file.read_text() == UNTIDY
    assert alone("spec", "fmt", str(link)).code == 0
    assert file.read_text() == TIDY
    assert (file.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.skep", "link.skep"]
    again = alone("spec", "fmt", "--check", str(link))
    assert (again.code, again.out) == (0, "")


def test_fmt_reads_stdin_and_prints(alone: Command) -> None:
    assert alone("spec", "fmt", "-", stdin=UNTIDY).out == TIDY
    assert alone("spec", "fmt", "--check", "-", stdin=UNTIDY).code == 1
    assert alone("spec", "fmt", "--check", "-", stdin=TIDY).code == 0


def test_fmt_leaves_a_file_alone_that_it_cannot_read_and_goes_on(alone: Command, tmp_path: Path) -> None:
    broken, other = tmp_path / "broken.skep", tmp_path / "other.skep"
    broken.write_text("app A {\n")
    other.write_text(UNTIDY)
    ended = alone("spec", "fmt", str(broken), str(other))
    assert ended.code == 1
    assert "broken.skep:1" in ended.err or "broken.skep:2" in ended.err
    assert (broken.read_text(), other.read_text()) == ("app A {\n", TIDY)


@pytest.mark.parametrize(("form", "key"), [("json", "name"), ("asyncapi", "asyncapi"), ("jsonschema", "$defs")])
def test_export_prints_a_document_for_other_tools(alone: Command, form: str, key: str) -> None:
    assert key in alone("spec", "export", str(ROOT / "examples/shop.skep"), "--format", form).json()


def test_export_of_a_wrong_spec_tells_what_is_wrong(alone: Command) -> None:
    ended = alone("spec", "export", "-", stdin=WRONG)
    assert (ended.code, ended.out) == (1, "")
    assert "<stdin>:4:10" in ended.err


@pytest.mark.parametrize(
    "arguments",
    [("check",), ("fmt",), ("check", "/nowhere/a.skep"), ("fmt", "/tmp"), ("fmt", "a.toml"), ("export", "/nowhere")],
)
def test_what_cannot_be_read_is_one_line(alone: Command, arguments: tuple[str, ...]) -> None:
    ended = alone("spec", *arguments)
    assert ended.code == 1
    assert ended.err.startswith("skep: INVALID_REQUEST: ")
    assert len(ended.err.splitlines()) == 1


def test_a_file_that_is_no_text_is_told_by_its_line(alone: Command) -> None:
    ended = alone("spec", "check", "-", stdin=b"app A {\n\xff}\n")
    assert ended.err == "skep: INVALID_REQUEST: Line 2 of <stdin> is not UTF-8.\n"
