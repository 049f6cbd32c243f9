"""The promises as rules over histories. Each yields violations; none reports what some order of events could explain.

A rule takes one pass over what it is about, sorted where it must be, so that its cost grows with the length of the history and not with its square.
"""

from collections.abc import Callable, Iterator

from torture.history import Violation
from torture.rules import answers, copied, dead_letters, leases, log, order, worked
from torture.track import Tracks

RULES: list[Callable[[Tracks], Iterator[Violation]]] = [
    answers.answers_are_whole,
    answers.each_message_has_one_place,
    log.durable_is_kept,
    log.only_pushed_is_delivered,
    log.batches_are_whole,
    log.stored_once,
    log.log_order_is_commit_order,
    order.first_deliveries_in_order,
    order.answers_are_in_order,
    order.nothing_overtakes,
    leases.one_live_lease,
    leases.stale_tokens_do_nothing,
    order.progress_never_goes_back,
    order.moved_past_does_not_come,
    order.deleted_does_not_come,
    order.no_skips,
    leases.expired_leases_come_again,
    leases.drained_is_empty,
    leases.attempts_are_exact,
    dead_letters.given_up_once,
    order.accounts_add_up,
    log.accepted_takes_effect_once_in_order,
    log.operations_are_done,
    leases.groups_are_apart,
    worked.effects_are_once,
    worked.posts_are_in_order,
    worked.repeats_are_once,
    copied.copies_are_once,
]
