"""All checks, in the order of their cost: lint, format, types, import directions, tests.

Every step runs even when an earlier one failed, so one run shows everything; pytest comes last, and with it its summary
line. Tests that share what takes long to start, such as a Spark, share a worker (tests/conftest.py). Flags of our own are
`--fast` (pytest only) and `--all` (slow tests too); all other arguments go to pytest.

The dashboard is tested in this machine's own browser. When there is none, root installs Debian's; anyone else is told, and told
again at the end: those tests are skipped.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
WORKERS = 3
"""One more than the cores of the machine that ten minutes are asked of: tests wait for what they start, and two left half of it idle."""

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NO_BROWSER = (
    "NO BROWSER: the tests of the dashboard are SKIPPED. Install one with: apt-get update && apt-get install chromium"
)

CHECKS: dict[str, list[str | Path]] = {
    "ruff check": [BIN / "ruff", "check", "--quiet"],
    "ruff format": [BIN / "ruff", "format", "--check", "--quiet"],
    "mypy": [BIN / "mypy", "--no-error-summary"],
    "lint-imports": [BIN / "lint-imports", "--no-logo"],
}


def main(arguments: list[str]) -> int:
    fast = "--fast" in arguments
    failed = [] if fast else [name for name, command in CHECKS.items() if not passes(name, command)]
    if failed:
        print(f"\nFAILED before the tests: {', '.join(failed)}")
    browser = has_browser()
    print("\n== pytest", flush=True)
    command = [sys.executable, "-m", "pytest", "-n", str(WORKERS)]
    command += [argument for argument in arguments if argument != "--fast"]
    status = subprocess.run(command, cwd=ROOT, env=with_bytecode(), check=False).returncode
    if not browser:
        print(f"\n{NO_BROWSER}", flush=True)
    return status or (1 if failed else 0)


def with_bytecode() -> dict[str, str]:
    """Return an environment in which modules are compiled once and kept beside the interpreter's own files.

    The tests start hundreds of processes, and each would compile all it imports where PYTHONDONTWRITEBYTECODE is set.
    """
    environ = {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "pycache"), **os.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


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


def passes(name: str, command: list[str | Path]) -> bool:
    """Run one check; print its time, and what it said only when it failed."""
    print(f"== {name} ", end="", flush=True)
    started = time.monotonic()
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    outcome = "ok" if run.returncode == 0 else "FAILED"
    print(f"{outcome} ({time.monotonic() - started:.1f} s)", flush=True)
    if run.returncode != 0:
        print(run.stdout, flush=True)
    return run.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
