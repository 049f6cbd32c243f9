"""The jar of the Spark connector is what its Java sources compile to: by their digest everywhere, and with `--all` by its classes where there is a JDK.

The compiler of Java 17, which the jar is made with, makes the same bytes wherever it runs. That of another version need not: the
order of constants and the code for a `switch` are its own affair. With such a one, what the classes offer is compared (`javap`), and not
how they do it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from skep.spark.jvm import JAR

SCRIPT = Path(__file__).parents[3] / "dev" / "jar.sh"
MADE_WITH = 17
ANONYMOUS = re.compile(r"\$\d")
SYNTHETIC = re.compile(r"this\$\d|access\$\d|\$SwitchMap")
JDK_SECONDS = 300


def test_the_jar_names_the_sources_beside_it() -> None:
    sources = sorted((JAR.parent / "skep" / "spark").glob("*.java"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    with zipfile.ZipFile(JAR) as jar:
        assert jar.read("META-INF/sources.sha256").decode().strip() == digest, "run dev/jar.sh"
        compiled = {Path(name).stem.partition("$")[0] for name in jar.namelist() if name.endswith(".class")}
    assert compiled == {path.stem for path in sources}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler (javac): the jar is not rebuilt")
def test_the_sources_compile_to_the_classes_of_the_jar(tmp_path: Path) -> None:
    rebuilt = tmp_path / "rebuilt.jar"
    output(str(SCRIPT), str(rebuilt))

    if content(rebuilt) != content(JAR):
        assert compiler_version() != MADE_WITH, "run dev/jar.sh"
        assert offered(rebuilt) == offered(JAR), "run dev/jar.sh"


def content(jar: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(jar) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def offered(jar: Path) -> list[str]:
    """The members of each class that are not private, but for those a compiler thinks up."""
    with zipfile.ZipFile(jar) as opened:
        names = sorted(Path(name).with_suffix("") for name in opened.namelist() if name.endswith(".class"))
    classes = [".".join(name.parts) for name in names if not ANONYMOUS.search(name.name)]
    return [line for line in output("javap", "-cp", str(jar), *classes).splitlines() if not SYNTHETIC.search(line)]


def compiler_version() -> int:
    found = re.search(r"javac (\d+)", output("javac", "-version"))
    assert found is not None
    return int(found[1])


def output(*command: str) -> str:
    environ = {**os.environ, "PYTHON": sys.executable}
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=JDK_SECONDS, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout
