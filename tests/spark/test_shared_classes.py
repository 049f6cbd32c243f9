"""Classes that one Java leaves for the next: when they are written, when they are used, and that a real Java does both."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from skep.spark.java import java_home
from skep.spark.shared_classes import UNFINISHED, UNUSED_SECONDS, sharing_options

WRITES, USES = "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile="


@pytest.fixture
def java(tmp_path: Path) -> Path:
    """A folder that looks like a Java with a file of its own classes."""
    home = tmp_path / "java"
    for name in ("bin/java", "lib/server/classes.jsa", "spark.jar"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(b"some")
    return home


def asked(java: Path, cache: Path) -> tuple[str, Path]:
    """Which option Java is given, and the file it names."""
    option, *_ = sharing_options(java, [java / "spark.jar"], environment={"XDG_CACHE_HOME": str(cache)}).split()
    name, _, file = option.partition("=")
    return f"{name}=", Path(file)


def test_the_first_java_writes_and_those_after_it_use_what_it_wrote(java: Path, tmp_path: Path) -> None:
    option, file = asked(java, tmp_path)
    assert option == WRITES
    assert file.parent == tmp_path / "skep"

    file.write_bytes(b"\xa8\xba\x0b\xf0 and so on")

    assert asked(java, tmp_path) == (USES, file)


@pytest.mark.parametrize("content", [b"", UNFINISHED + b" and so on"])
def test_what_was_not_written_to_its_end_is_written_again(java: Path, tmp_path: Path, content: bytes) -> None:
    _, file = asked(java, tmp_path)
    file.write_bytes(content)

    assert asked(java, tmp_path) == (WRITES, file)


@pytest.mark.parametrize("changed", ["bin/java", "lib/server/classes.jsa", "spark.jar"])
def test_another_java_or_other_jars_have_another_file(java: Path, tmp_path: Path, changed: str) -> None:
    _, file = asked(java, tmp_path)
    file.write_bytes(b"whole")
    os.utime(java / changed, (1, 1))

    option, other = asked(java, tmp_path)

    assert option == WRITES
    assert other != file


def test_what_nobody_has_used_for_long_is_deleted_when_another_is_written(java: Path, tmp_path: Path) -> None:
    old, used = (tmp_path / "skep" / f"classes-{name}.jsa" for name in ("old", "used"))
    old.parent.mkdir()
    for file in (old, used):
        file.write_bytes(b"whole")
    long_ago = time.time() - UNUSED_SECONDS - 1
    os.utime(old, (long_ago, long_ago))

    asked(java, tmp_path)

    assert not old.exists()
    assert used.exists()


def test_nothing_is_asked_of_a_java_without_such_a_file_and_where_nothing_can_be_kept(
    java: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert sharing_options(java, [], environment={"XDG_CACHE_HOME": str(tmp_path / "file")}) == ""

    (java / "lib/server/classes.jsa").unlink()
    assert sharing_options(java, [], environment={"XDG_CACHE_HOME": str(tmp_path)}) == ""


def test_nothing_is_asked_where_nobody_has_a_home(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(Path, "home", homeless)

    assert sharing_options(java, [], environment={}) == ""


def test_nothing_is_asked_where_java_looks_for_classes_in_a_folder_too(java: Path, tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    cache = {"XDG_CACHE_HOME": str(tmp_path)}
    assert sharing_options(java, [], [conf, tmp_path / "none"], cache) != ""

    (conf / "spark-defaults.conf").touch()

    assert sharing_options(java, [], [conf], cache) == ""


def test_a_folder_with_a_blank_in_its_name_stays_one_word(java: Path, tmp_path: Path) -> None:
    options = sharing_options(java, [], environment={"XDG_CACHE_HOME": str(tmp_path / "my cache")})

    assert options.startswith(f"'{WRITES}{tmp_path}/my cache/skep/classes-")


@pytest.mark.slow
def test_a_session_takes_the_classes_that_one_before_it_has_left(tmp_path: Path) -> None:
    if not sharing_options(java_home(), [], environment={"XDG_CACHE_HOME": str(tmp_path)}):
        pytest.skip("this Java has no file of its own classes")
    program = textwrap.dedent("""
        from pathlib import Path
        from skep.spark.session import start_session

        spark = start_session(master="local[1]", quick_start=True)
        assert spark.range(10).count() == 10
        java = spark.sparkContext._gateway.proc
        print(".jsa" in Path(f"/proc/{java.pid}/maps").read_text().replace("server/classes.jsa", ""))
        spark.stop()
        java.stdin.close()
        java.wait()
    """)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "my cache")}

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    assert [run(), run()] == ["False", "True"]
