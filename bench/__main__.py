"""`./skep bench` from a clone: the benchmarks beside `src`, which no wheel has."""

import sys

from bench.app import bench_app
from skep.cli.app import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], bench_app))
