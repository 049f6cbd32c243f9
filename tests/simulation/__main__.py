"""Runs of seeds, as a program: `python -m tests.simulation FIRST [END]`. It tells what each run showed, and ends with 1 if that was bad."""

from __future__ import annotations

import sys

from tests.simulation.run import run


def main(arguments: list[str]) -> int:
    """Run the seeds from the first to the last but one."""
    first = int(arguments[0])
    end = int(arguments[1]) if len(arguments) > 1 else first + 1
    bad = 0
    for seed in range(first, end):
        found = run(seed)
        print(found.line)
        for violation in found.violations:
            print(f"    {violation.promise}: {violation.text}")
        bad += bool(found.violations)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
