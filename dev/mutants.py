"""Apply each mutant to a copy of the checkout, run its tests, and tell who survived: `./skep test --mutants [--list] [WORD …]`.

With words, only mutants whose table or name has one of them. A mutant is killed when a test fails. When nothing could be tested, since
the copy does not even start, the mutant is broken: it proves nothing. Tests that do not end count as failed.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.mutants import Mutant  # noqa: E402
from tests.mutants.tables import TABLES  # noqa: E402

COPIES = 2
"""How many run at once."""
LONGEST_SECONDS = 300
KILLED, SURVIVED, EQUIVALENT, BROKEN = "killed", "SURVIVED", "equivalent", "BROKEN"
PASSED, FAILED = 0, 1


def main(arguments: list[str]) -> int:
    """Run the mutants that the arguments name; 1 when one survived or is broken."""
    words = [word.lower() for word in arguments if not word.startswith("-")]
    chosen = [
        (table, mutant)
        for table, mutants in TABLES.items()
        for mutant in mutants
        if not words or any(word in f"{table} {mutant.name}".lower() for word in words)
    ]
    if "--list" in arguments:
        for table, mutant in chosen:
            print(f"{table}: {mutant.name} ({mutant.file})")
        return 0
    started = time.monotonic()
    with copies() as free, ThreadPoolExecutor(COPIES) as threads:
        verdicts = list(threads.map(lambda one: judged(free, *one), chosen))
    print(f"\n{len(verdicts)} mutants in {time.monotonic() - started:.0f} s: ", end="")
    print(", ".join(f"{verdicts.count(kind)} {kind}" for kind in (KILLED, EQUIVALENT, SURVIVED, BROKEN)))
    return int(SURVIVED in verdicts or BROKEN in verdicts or not verdicts)


@contextmanager
def copies() -> Iterator[SimpleQueue[Path]]:
    """Copies of the checkout's files, as they are now, for mutants to be applied to."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    free: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory(prefix="skep-mutants-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)  # PostgreSQL has an account of its own
        for number in range(COPIES):
            copy = Path(folder) / str(number)
            for name in listed.stdout.splitlines():
                if (ROOT / name).is_file():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, copy / name)
            compile_sources(copy)
            free.put(copy)
        yield free


def compile_sources(copy: Path) -> None:
    """Compile all modules, so that no run has to. A module counts as changed by its text: a fault may change neither time nor size."""
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "checked-hash", "src"]
    subprocess.run(command, cwd=copy, check=True)


def judged(free: SimpleQueue[Path], table: str, mutant: Mutant) -> str:
    """Run one mutant and print its verdict."""
    if mutant.equivalent is not None:
        print(f"{EQUIVALENT:10}       {table}: {mutant.name}: {mutant.equivalent}", flush=True)
        return EQUIVALENT
    copy = free.get()
    started = time.monotonic()
    verdict, said = run(copy, mutant)
    free.put(copy)
    print(f"{verdict:10} {time.monotonic() - started:4.0f} s {table}: {mutant.name}", flush=True)
    if verdict != KILLED:
        print(said[-3000:], flush=True)
    return verdict


def run(copy: Path, mutant: Mutant) -> tuple[str, str]:
    """Apply a mutant to a copy, run its tests there, and take the fault back."""
    file = copy / "src/skep" / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.apply(text), encoding="utf-8")
    try:
        status, said = pytest(copy, shlex.split(mutant.killed_by))
    finally:
        file.write_text(text, encoding="utf-8")
    if status == PASSED:
        return SURVIVED, said
    return KILLED if status is None or (status == FAILED and "\nFAILED " in said) else BROKEN, said


def pytest(copy: Path, arguments: list[str]) -> tuple[int | None, str]:
    """The status of pytest, None when it did not end, and the end of what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=short", *arguments]
    environ = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environ.pop("PYTHONPYCACHEPREFIX", None)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=copy, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )  # fmt: skip
        try:
            status: int | None = process.wait(LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
        output.seek(0)
        return status, output.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
