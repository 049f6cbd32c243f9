"""Printing and reading give the same app back, in every form; formatting twice is formatting once; nothing crashes."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.errors import SkepError
from skep.spec import (
    App,
    ExportFormat,
    check,
    compile_expression,
    evaluate,
    export,
    format_spec,
    from_json,
    from_toml,
    parse_app,
    plan,
    print_app,
    to_json,
    to_toml,
    validate,
)
from skep.spec.types import STRING
from tests.spec.apps import apps
from tests.spec.incidents import INCIDENTS
from tests.spec.test_parser import EVERYTHING

SLOW_TO_DRAW = [HealthCheck.too_slow, HealthCheck.data_too_large]
usual = settings(max_examples=30, suppress_health_check=SLOW_TO_DRAW)
thorough = settings(max_examples=2_000, suppress_health_check=SLOW_TO_DRAW)


def hold_to_all_forms(app: App) -> None:
    printed = print_app(app)
    parsed = parse_app(printed)
    assert parsed.problems == []
    assert parsed.app == app
    assert format_spec(printed) == printed
    assert from_json(to_json(app)) == app
    assert from_toml(to_toml(app)) == app
    validate(app, parsed.spans)
    plan(app, {})
    for form in ExportFormat:
        msgspec.json.decode(export(app, form))


@usual
@given(apps)
def test_an_app_comes_back_from_every_form(app: App) -> None:
    hold_to_all_forms(app)


@pytest.mark.slow
@thorough
@given(apps)
def test_an_app_comes_back_from_every_form_thoroughly(app: App) -> None:
    hold_to_all_forms(app)


@pytest.mark.parametrize("text", [INCIDENTS, EVERYTHING], ids=["incidents", "everything"])
def test_formatting_changes_no_meaning_and_is_done_once(text: str) -> None:
    formatted = format_spec(text)
    assert format_spec(formatted) == formatted
    assert parse_app(formatted).app == parse_app(text).app


def test_comments_stay_where_they_were() -> None:
    text = "# top\n\napp A {  // of A\n\n\n  # first\n  // second\n  queue Q { paused:true } // after\n  # last\n}\n// end\n"
    assert format_spec(text) == (
        "# top\napp A {  // of A\n  # first\n  // second\n  queue Q {\n    paused: true\n  }  // after\n  # last\n}\n// end\n"
    )


LETTER = '''\
app Letters {
    queue Letters {
  message_type { to: string }
  then: queue Mails {
    text: """Dear "{name}",
      indented, with blanks at the end:\x20\x20

  # no comment, // none either }
\\"""quoted\\""", and a tab:\t|"""
    same: [to,
        r"""
   raw \\n""",
          to + missing]
  }
    }
  queue Mails {}
}
'''
TEXT = (
    'Dear "{name}",\n      indented, with blanks at the end:  \n\n  # no comment, // none either }\n'
    '"""quoted""", and a tab:\t|'
)


def test_a_string_over_several_lines_stays_as_it_is() -> None:
    formatted = format_spec(LETTER)
    assert format_spec(formatted) == formatted
    for text in (LETTER, formatted, LETTER.replace("\n", "\r\n")):
        app = parse_app(text).app
        assert app is not None
        fields = app.queues["Letters"].then[0].fields
        assert evaluate(compile_expression(fields["text"], {}), {}) == TEXT
        raw = compile_expression(fields["same"].replace("missing", "to"), {"to": STRING})
        assert evaluate(raw, {"to": "a"}) == ["a", "\n   raw \\n", "aa"]
        if "\r" not in text:
            assert parse_app(print_app(app)).app == app


@pytest.mark.parametrize("changed", [LETTER, format_spec(LETTER)], ids=["as written", "formatted"])
def test_what_is_wrong_after_such_a_string_is_found_at_its_place(changed: str) -> None:
    (problem,) = check(changed, "x.skep").problems
    line = changed.splitlines()[problem.line - 1]
    assert problem.message == "there is no field 'missing' here"
    assert line[problem.column - 1 :].startswith("missing")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_wrong_escape_in_such_a_string_is_found_at_its_place(end: str) -> None:
    text = end.join(["app A {", "  queue Q {", '    key: """a', "  b", r' c \q"""', "  }", "}", ""])
    (problem,) = check(text, "x.skep").problems
    assert (problem.line, problem.column, problem.message) == (5, 4, r"\q is not an escape")


def test_a_string_in_three_quotes_that_is_not_closed_is_told_at_its_place() -> None:
    text = 'app A {\n  queue Q {\n    key: """a\n    paused: true\n  }\n}\n'
    (problem,) = check(text, "x.skep").problems
    assert (problem.line, problem.column, problem.message) == (3, 10, "this string is not closed")
    assert problem.expected == 'a closing """'


def test_every_comment_survives() -> None:
    comments = [line.split("//")[1].strip() for line in INCIDENTS.splitlines() if "//" in line]
    formatted = format_spec(INCIDENTS)
    assert len(comments) == 10
    assert all(comment in formatted for comment in comments)


PIECES = st.sampled_from([
    "app", "queue", "A", "B", "{", "}", "\n", "\n", ":", "message_type", "int", "list<", ">", "?", "enum(", ")", "(", '"', "'",
    "//", "#", "map_to: command X.Y {", "then: queue A {", "webhook", "verify_hmac", "entity", "id: x", "command", "emits",
    "event", "when", "schedule", "cron:", '"0 0 * * *"', "retention", "max_age: 1d", "idempotency", "key:", ",", ";", "=", "\\",
    "é", "\r\n", "\t", "deliver:", "1", "r'", "[", "]", "<", '"""', "'''", 'r"""', "`",
])  # fmt: skip


def hold_to_our_errors(text: str) -> None:
    for filename in ("x.skep", "x.toml", "x.json"):
        checked = check(text, filename)
        assert len(checked.rendered) == len(checked.problems)
    try:
        formatted = format_spec(text)
    except SkepError:
        return
    assert format_spec(formatted) == formatted


@settings(max_examples=200)
@given(
    st.one_of(
        st.lists(PIECES, max_size=40).map(" ".join), st.lists(PIECES, max_size=40).map("".join), st.text(max_size=80)
    )
)
def test_no_text_makes_the_parser_crash(text: str) -> None:
    hold_to_our_errors(text)


def mutated(text: str, dice: random.Random) -> str:
    """The text with a few pieces cut, doubled, moved or spoilt."""
    for _ in range(dice.randint(1, 4)):
        start = dice.randrange(len(text))
        end = min(len(text), start + dice.choice([1, 1, 2, 5, 20, 80]))
        match dice.randrange(4):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:end] + text[start:end] + text[end:]
            case 2:
                text = text[:start] + dice.choice("{}()[]<>\"':,;#/\\\n\x00é=.") + text[start:]
            case _:
                target = dice.randrange(len(text))
                text = text[:target] + text[start:end] + text[target:]
        text = text or "x"
    return text


@settings(max_examples=80)
@given(st.sampled_from([INCIDENTS, EVERYTHING]), st.integers())
def test_no_spoilt_spec_makes_the_parser_crash(text: str, seed: int) -> None:
    hold_to_our_errors(mutated(text, random.Random(seed)))


@pytest.mark.slow
@settings(max_examples=10_000)
@given(st.sampled_from([INCIDENTS, EVERYTHING]), st.integers())
def test_no_spoilt_spec_makes_the_parser_crash_thoroughly(text: str, seed: int) -> None:
    hold_to_our_errors(mutated(text, random.Random(seed)))


HUGE = {
    "open blocks": "app A {" * 100_000,
    "open brackets": "app A { queue Q { key: " + "(\n" * 50_000,
    "lines of open brackets": "app A { queue Q {\n" + "key: (\n" * 100_000,
    "closing braces": "}" * 100_000,
    "one long line": "app A { queue Q { key: " + "a" * 900_000,
    "many queues": "app A {\n" + "".join(f"queue Q{i} {{ then: queue Q{i + 1} {{}} }}\n" for i in range(1_500)) + "}",
    "many unknown queues": "app A {\n"
    + "".join(f"queue Q{i} {{ then: queue R{i} {{}} }}\n" for i in range(3_000))
    + "}",
    "many circles": "app A {\n"
    + "".join(f"queue Q{i} {{\nthen: queue Q{i + 1} {{}}\nthen: queue Q0 {{}} }}\n" for i in range(1_500))
    + "}",
    "dots": "a." * 100_000 + "a = 1",
    "many comments": "// x\n" * 30_000,
    "too long": "x" * 2_000_000,
    "a long default": "app A { queue Q { message_type { a: json = " + "9" * 5_000 + " } } }",
    "an endless default": "app A { queue Q { message_type { a: float = 1e999 } } }",
    "nested types": "app A { queue Q { message_type { a: " + "list<" * 5_000 + "} } }",
    "quotes": "app A { queue Q { key: " + "'" * 100_001,
    "strings in three quotes that are not closed": 'app A { queue Q { key: """' + '\n\\"""' * 20_000,
    "nested arrays": "[" * 100_000,
    "a deep default": "app A { queue Q { message_type { a: json = " + "[" * 2_000 + "]" * 2_000 + "} } }",
}


@pytest.mark.parametrize("text", HUGE.values(), ids=list(HUGE))
def test_huge_and_deep_texts_are_no_trouble(text: str) -> None:
    hold_to_our_errors(text)
