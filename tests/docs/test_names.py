"""Names in the documentation are names in the program: methods, metrics, variables, headers, and lists that must be whole."""

from __future__ import annotations

import re
from operator import attrgetter

import pytest

import skep
from skep.config.load import all_settings
from skep.http.request.peers import FORWARDED_FOR, FORWARDED_PROTO
from skep.model import DeadReason
from skep.server.compose import open_engine
from skep.testing.server import running_server
from tests.docs.test_docs import PAGES, ROOT, name_of, prose
from tests.http.driver import Api

GUIDES = [page for page in PAGES if "adr" not in page.parts]
NO_METRICS = {
    "skep_client", "skep_async_client", "skep_server", "skep_clock", "skep_session", "skep_messages", "skep_nightly", "skep_operators",
}  # fmt: skip
"""Fixtures, the cookie, a table of a sample, and the files of the example for Airflow."""


def everywhere(pattern: str) -> set[tuple[str, str]]:
    """Each page that has a name of this kind, and the name."""
    return {(name_of(page), name) for page in GUIDES for name in re.findall(pattern, page.read_text(encoding="utf-8"))}


def called_in_concepts() -> list[str]:
    chapter = (ROOT / "docs/concepts.md").read_text(encoding="utf-8").partition("## What you call")[2]
    rows = [line for line in chapter.splitlines() if line.startswith("| ") and not line.startswith("| to |")]
    return [name for row in rows for name in re.findall(r"`([a-z_.]+)`", row)]


async def test_every_method_of_the_engine_that_is_named_is_there() -> None:
    named = {("docs/concepts.md", name) for name in called_in_concepts()} | everywhere(
        r"engine\.([a-z_]+(?:\.[a-z_]+)*)\("
    )
    assert len(called_in_concepts()) > 25

    missing = []
    async with open_engine(":memory:") as engine:
        for page, name in sorted(named):
            try:
                assert callable(attrgetter(name)(engine))
            except AttributeError:
                missing.append((page, name))
    assert missing == []


def test_every_method_of_the_client_that_is_named_is_there() -> None:
    named = everywhere(r"(?<![\w.])client\.([a-z_]+)\(")

    assert len(named) > 10
    assert [one for one in sorted(named) if not callable(getattr(skep.Client, one[1], None))] == []


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """The metrics as Prometheus sees them."""
    with running_server() as server:
        api = Api(server, "default")
        api.push("orders", 1)
        text = api.request("GET", "/metrics").body.decode()
        api.close()
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


def test_every_metric_that_is_named_is_exposed_under_that_name(exposed: set[str]) -> None:
    named = {(page, name) for page, name in everywhere(r"\b(skep_[a-z_]+[a-z])\b") if name not in NO_METRICS}
    named = {(page, name) for page, name in named if not name.startswith("skep_data")}

    assert len(named) > 30
    assert [one for one in sorted(named) if one[1] not in exposed] == []


def test_every_metric_is_documented(exposed: set[str]) -> None:
    named = {name for page, name in everywhere(r"`(skep_[a-z_]+)`") if page == "docs/http.md"}
    assert exposed - named == {name for name in exposed if not name.startswith("skep_")}


def test_every_counter_is_named_with_its_ending(exposed: set[str]) -> None:
    counters = {name.removesuffix("_total") for name in exposed if name.endswith("_total")}
    bare = everywhere(r"\b(skep_[a-z_]+[a-z])\b")
    assert counters
    assert [one for one in sorted(bare) if one[1] in counters] == []


def test_a_list_of_reasons_for_dead_letters_has_all_of_them() -> None:
    lists = []
    for page in GUIDES:
        for part in re.split(r"\n\s*\n|(?<=[.]) ", page.read_text(encoding="utf-8")):
            found = {reason for reason in DeadReason if f"`{reason}`" in part}
            if {DeadReason.REJECTED, DeadReason.EXPIRED} <= found:
                lists.append((name_of(page), found))

    assert len(lists) >= 3
    assert [page for page, found in lists if found != set(DeadReason)] == []


def test_every_variable_that_is_named_is_read_somewhere() -> None:
    source = [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("dev/*"), ROOT / "skep"]
    read = {name for file in source if file.is_file() for name in re.findall(r"SKEP_[A-Z_]+", file.read_text("utf-8"))}
    read |= {one.variable for one in all_settings()}
    named = everywhere(r"\b(SKEP_[A-Z_]*[A-Z])\b")

    assert len(named) > 10
    assert [one for one in sorted(named) if one[1] not in read] == []


def test_the_forwarded_headers_that_are_said_to_be_read_are_read() -> None:
    from skep.http.request.prefix import PREFIX_HEADER

    read = {header.decode() for header in (FORWARDED_FOR, FORWARDED_PROTO, PREFIX_HEADER)}
    said = {name.lower() for _, name in everywhere(r"(X-Forwarded-[A-Z][a-z]+)")}
    unread = re.findall(r"`(X-Forwarded-\w+)`[^.]*are not read", (ROOT / "docs/serving.md").read_text(encoding="utf-8"))

    assert read <= said
    assert said - read == {"x-forwarded-host", "x-forwarded-port"}
    assert unread


def test_the_changelog_does_not_say_that_insecure_is_needed_off_loopback() -> None:
    [line] = [part for part in prose(ROOT / "CHANGELOG.md").split("\n- ") if part.startswith("`skep serve`: ")]
    assert "off loopback it asks for keys" in " ".join(line.split())


def test_what_was_left_out_is_told_with_its_reason() -> None:
    text = (ROOT / "docs/left-out.md").read_text(encoding="utf-8")
    for heading in ("WebSockets", "MySQL", "Kinds of operations", "Round robin without a partition", "Transaction ids"):
        assert re.search(rf"^## {heading}", text, re.MULTILINE), heading
    assert "docs/left-out.md" in (ROOT / "README.md").read_text(encoding="utf-8")
