"""`./skep torture` from a clone: the torture beside `src`, which no wheel has."""

import logging
import sys

from skep.cli.app import run
from torture.app import torture_app

if __name__ == "__main__":
    logging.getLogger("skep").setLevel(logging.CRITICAL)  # retries are what is wanted here
    sys.exit(run(sys.argv[1:], torture_app))
