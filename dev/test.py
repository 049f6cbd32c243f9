"""All checks: lint, format, import directions, types and tests.

Every step runs even when an earlier one failed, so one run shows everything. Types are checked beside the tests, as they take
most of a minute of one processor, which the tests leave idle while they are collected; what was found is told after them. Tests that
share what takes long to start, such as a Spark, share a worker (tests/conftest.py). Flags of our own are `--fast` (pytest only,
without what starts PostgreSQL, a Spark, a browser or servers) and `--all` (slow tests too); all other arguments go to pytest.
With `--mutants` no test runs on the code as it is: see mutants.py.

The dashboard is tested in this machine's own browser. When there is none, root installs Debian's; anyone else is told, and told
again at the end: those tests are skipped.

Temporary files are kept in memory where there is enough of it: nearly every test waits for a disk to write what it stored, and none
needs it to outlive the machine. Set TMPDIR to have them elsewhere, and to look at them after the tests.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
WORKERS = 5
"""Three more than the cores of the machine that seven minutes are asked of: tests wait for what they start. Four left a quarter of it idle."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = (
    "NO BROWSER: the tests of the dashboard are SKIPPED. Install one with: apt-get update && apt-get install chromium"
)

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 6 << 30
"""What must be free there and in the machine: the tests have three PostgreSQLs, a lake, and some files of hundreds of megabytes."""

CHECKS: dict[str, list[str | Path]] = {
    "ruff check": [BIN / "ruff", "check", "--quiet"],
    "ruff format": [BIN / "ruff", "format", "--check", "--quiet"],
    "lint-imports": [BIN / "lint-imports", "--no-logo"],
}
TYPES: list[str | Path] = [BIN / "mypy", "--no-error-summary"]


def main(arguments: list[str]) -> int:
    if "--mutants" in arguments:
        mutants = [sys.executable, "dev/mutants.py", *(given for given in arguments if given != "--mutants")]
        return subprocess.run(mutants, cwd=ROOT, check=False).returncode
    if "--fast" in arguments:
        return tests(arguments)
    failed = [name for name, command in CHECKS.items() if not passes(name, command)]
    if failed:
        print(f"\nFAILED before the tests: {', '.join(failed)}")
    with Beside("mypy", TYPES) as types:
        status = tests(arguments)
        return status or int(bool(failed) | (not types.passes()))


def tests(arguments: list[str]) -> int:
    """Run pytest; its status."""
    browser = has_browser()
    print("\n== pytest", flush=True)
    command = [sys.executable, "-m", "pytest", "--workers", str(WORKERS), *arguments]
    with temporary_files() as variables:
        status = subprocess.run(command, cwd=ROOT, env=with_bytecode() | variables, check=False).returncode
    if not browser:
        print(f"\n{NO_BROWSER}", flush=True)
    return status


def with_bytecode() -> dict[str, str]:
    """Return an environment in which modules are compiled once and kept beside the interpreter's own files.

    The tests start hundreds of processes, and each would compile all it imports where PYTHONDONTWRITEBYTECODE is set.
    """
    environ = {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "pycache"), **os.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


@contextmanager
def temporary_files() -> Iterator[dict[str, str]]:
    """Say where temporary files go: to a folder in memory, which is gone afterwards, or where they always go."""
    if "TMPDIR" in os.environ or not has_memory():
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="skep-tests-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # PostgreSQL has an account of its own, and a folder in this one
        yield {"TMPDIR": folder}


def has_memory() -> bool:
    """Whether there is a file system in memory that programs can be started from, and enough memory for it."""
    try:
        found = os.statvfs(MEMORY)
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    [available] = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    free = min(found.f_bavail * found.f_frsize, available)
    return os.access(MEMORY, os.W_OK) and not found.f_flag & os.ST_NOEXEC and free >= MEMORY_BYTES


def has_browser() -> bool:
    """Whether there is a browser, after trying to install one."""
    if any(shutil.which(name) for name in BROWSERS):
        return True
    apt = shutil.which("apt-get")
    if apt is not None and os.geteuid() == 0:
        print("== installing chromium with apt-get ", end="", flush=True)
        environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
        commands = [
            [apt, "update", "-qq"],
            [apt, "install", "-qq", "--no-install-recommends", "chromium", "fonts-dejavu-core"],
        ]
        for command in commands:
            run = subprocess.run(
                command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
            if run.returncode != 0:
                print(f"FAILED\n{run.stdout[-2000:]}", flush=True)
                break
        else:
            print("ok", flush=True)
    if shutil.which(BROWSERS[0]):
        return True
    print(f"== {NO_BROWSER}", flush=True)
    return False


class Beside:
    """A check that runs while something else does."""

    def __init__(self, name: str, command: list[str | Path]) -> None:
        self._name = name
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._process.communicate()

    def passes(self) -> bool:
        """Wait for its end, and print what it said only when it failed."""
        said, _ = self._process.communicate()
        return told(self._name, self._process.returncode, said)


def passes(name: str, command: list[str | Path]) -> bool:
    """Run one check; print what it said only when it failed."""
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return told(name, run.returncode, run.stdout)


def told(name: str, status: int, said: str) -> bool:
    print(f"== {name} {'ok' if status == 0 else 'FAILED'}", flush=True)
    if status != 0:
        print(said, flush=True)
    return status == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
