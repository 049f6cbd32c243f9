"""PostgreSQL's JDBC driver, for the comparison with Spark's own reader: the system's, or Debian's package unpacked."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from skep.spark.cached import cache_folder

INSTALLED = Path("/usr/share/java/postgresql.jar")
PACKAGE = "libpostgresql-jdbc-java"
DOWNLOAD_SECONDS = 60


def driver_jar() -> Path | None:
    """The driver: named by SKEP_JDBC_JAR, installed, or had from Debian without installing it; None when there is none."""
    if named := os.environ.get("SKEP_JDBC_JAR"):
        return Path(named)
    if INSTALLED.exists():
        return INSTALLED
    kept = cache_folder() / "postgresql-jdbc.jar"
    return kept if kept.exists() or _unpacked(kept) else None


def _unpacked(target: Path) -> bool:
    """Fetch the package as any user may, and take the jar out of it."""
    with TemporaryDirectory(prefix="skep-jdbc-") as folder:
        try:
            for command in (["apt-get", "download", PACKAGE], ["sh", "-c", "dpkg-deb -x *.deb ."]):
                subprocess.run(command, cwd=folder, capture_output=True, timeout=DOWNLOAD_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError):
            return False
        found = [jar for jar in Path(folder).rglob("postgresql*.jar") if not jar.is_symlink()]
        if not found:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(found[0], target)
        return True
