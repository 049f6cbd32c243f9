"""What the random operations of the state machine are drawn from."""

from __future__ import annotations

from hypothesis import strategies as st

from skep.model import (
    QUEUE_MODE_GROUP,
    Ordering,
    Outcome,
    QueueSettings,
    Retry,
)

PLENTY = 1000


# Ages end between whole seconds, on which everything here happens, so that nothing hangs on a boundary.
SETTINGS = st.builds(
    QueueSettings,
    ordering=st.sampled_from([Ordering.PER_KEY, Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED]),
    lease_seconds=st.sampled_from([5.0, 20.0]),
    max_attempts=st.sampled_from([0, 1, 2, 3]),
    dead_letter_queue=st.sampled_from([None, None, "grave", "grave", "none"]),
    max_depth=st.sampled_from([0, 0, 0, 0, 0, 9]),
    dedup_window_seconds=st.sampled_from([86_400.0, 30.5]),
    delayed_processing_seconds=st.sampled_from([0.0, 0.0, 0.0, 0.0, 3.0]),
    retention_seconds=st.sampled_from([0.0, 10.5]),
    retention_requires_archive=st.sampled_from([False, False, True]),
    max_wait_seconds=st.sampled_from([0.0, 0.0, 0.0, 25.5]),
    max_age_seconds=st.sampled_from([0.0, 0.0, 0.0, 35.5]),
)


# Where some of them bury: nobody reads there to begin with, and age, retention and depth have their say.
GRAVE_SETTINGS = st.builds(
    QueueSettings,
    ordering=st.sampled_from([Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED]),
    lease_seconds=st.just(5.0),
    max_attempts=st.just(0),
    dead_letter_queue=st.just("none"),
    max_depth=st.sampled_from([0, 3]),
    max_age_seconds=st.sampled_from([0.0, 15.5]),
    retention_seconds=st.sampled_from([0.0, 10.5]),
    retention_ignores_groups=st.booleans(),
    retention_requires_archive=st.sampled_from([False, False, True]),
)


NAMES = ("a", "b")


PARTITIONS = st.sampled_from(["Default", "p", "r"])


GROUP_NAMES = st.sampled_from([QUEUE_MODE_GROUP, QUEUE_MODE_GROUP, "g"])


PICKS = st.integers(0, 1_000)


MESSAGES = st.lists(
    st.tuples(
        PARTITIONS, st.sampled_from([None, None, None, "t1", "t2"]), st.sampled_from([None, None, None, None, 4])
    ),
    min_size=1,
    max_size=4,
)


OUTCOMES = st.lists(
    st.tuples(PICKS, st.sampled_from(list(Outcome)), st.sampled_from(list(Retry)), st.booleans()),
    min_size=1,
    max_size=5,
)


COUNTERS = ("x", "y")


RECEIPTS = ("k1", "k2", "k3")


# Which counter, how many events, and by how much its version is mistaken.
EFFECTS = st.lists(
    st.tuples(st.sampled_from(COUNTERS), st.integers(1, 2), st.sampled_from([0, 0, 0, 0, 1])), max_size=3
)
