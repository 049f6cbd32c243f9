"""Processes that are forked from one that has imported what they need.

There is one such process in each worker, and the last list of modules that it was given counts, for all who fork from it. So the list is here,
and nowhere else: without its module, each process imports Skep anew, which takes longer than what most of them do.
"""

from __future__ import annotations

import multiprocessing

MODULES = [
    "tests.spool.test_crash",
    "tests.support.crash",
    "tests.support.crash_operations",
    "tests.support.crash_staging",
    "torture.store_load",
]
"""Those that have the body of a process."""

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(MODULES)
