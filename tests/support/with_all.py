"""Tests that run with `--all` only, though none of them is slow: each repeats, at a cost, a line that another one holds.

A test is named by the beginning of its id, and stands beside the one of the default run that holds the same line: of the next layer,
on the other store, or by another road. Promises (`I1` to `I15`) always run.
"""

from __future__ import annotations

from collections.abc import Iterable

BROWSER = {
    "test_clicks.py::test_a_queue_is_paused": "test_queues.py::test_a_queue_is_paused_and_resumed",
    "test_clicks.py::test_a_dead_letter_is_edited_and_replayed": "test_dead_letters.py::test_one_is_edited_and_replayed",
    "test_clicks.py::test_a_scheduled_message_runs_now": "test_scheduled.py::test_they_are_listed_and_one_is_cancelled_after_a_preview",
    "test_clicks.py::test_a_phone_takes_no_more_clicks": "test_clicks.py::test_why_a_queue_is_slow_and_its_percentiles",
    "test_clicks.py::test_the_message_of_a_customer_by_what_its_payload_says": "test_messages.py::test_the_box_finds_messages",
    "test_clicks.py::test_a_message_and_its_story_by_its_transaction_id": (
        "test_traces.py::test_a_trace_is_found_by_a_transaction_id_and_failures_are_red"
    ),
    "test_clicks.py::test_with_keys_alone_a_queue_is_found_and_paused": "test_keyboard.py::test_a_table_is_walked_and_a_row_opened",
    "test_comfort.py::test_screens_after_all": "test_queue.py::test_a_queue_shows_groups_partitions_and_messages",
    "test_comfort.py::test_a_name_of_221_characters_does_not_stretch_the_page": (
        "test_hostile.py::test_nothing_that_others_write_runs_in_a_page"
    ),
    "test_dead_letters.py::test_all_that_match_a_filter_are_replayed": (
        "test_dead_letters.py::test_selected_ones_are_replayed_after_a_preview"
    ),
    "test_dead_letters.py::test_choosing_none_is_told": "test_dead_letters.py::test_selected_ones_are_replayed_after_a_preview",
    "test_keyboard.py::test_a_form_is_filled_and_sent": "test_queue.py::test_a_test_message_is_published",
    "test_other_pages.py::test_no_page_of_others_pops_a_message[frame that": "test_other_pages.py::test_no_page_of_others_pops_a_message",
    "test_other_pages.py::test_no_page_of_others_pops_a_message[object": "test_other_pages.py::test_no_page_of_others_pops_a_message",
    "test_other_pages.py::test_no_page_of_others_pops_a_message[picture": "test_other_pages.py::test_no_page_of_others_pops_a_message",
    "test_other_pages.py::test_no_page_of_others_pops_a_message[window": "test_other_pages.py::test_no_page_of_others_pops_a_message",
    "test_queue.py::test_a_seek_to_a_seq_is_previewed": "test_queue.py::test_a_seek_is_previewed_before_it_is_made",
    "test_scheduled.py::test_a_phone_shows_them_without": (
        "test_comfort.py::test_rows_keep_their_actions_on_a_phone_and_these_look_like_buttons"
    ),
    "test_traces.py::test_traces_are_found_by_the_names_of_events": "test_traces.py::test_a_trace_is_drawn_across_queues",
}
"""In a browser, the road by clicks or keys to what a page's own test does; and more ways of the same page."""

SPARK = {
    "test_columns.py::test_columns_have_the_values_of_the_table": "test_columns.py::test_columns_have_the_values_of_a_part_of_the_table",
    "test_commands.py::test_commands_and_rejects_of_a_few_messages": (
        "test_running.py::test_commands_of_a_spec_go_to_a_table_and_a_queue_and_rejects_to_the_dead_letters"
    ),
    "test_encrypted_queues.py::test_a_queue_whose_encryption_was_turned_off": (
        "test_encrypted_queues.py::test_encrypted_queues_are_sealed_in_the_lake_and_plain_only_when_named"
    ),
    "test_expressions_guide.py::test_the_samples_print_what_the_guide_says": "test_columns.py::test_messages_without_a_type",
    "test_generations.py::test_messages_of_all_generations_can_be_replayed": (
        "test_generations.py::test_a_queue_made_anew_is_a_new_generation_and_stops_no_other"
    ),
    "test_journeys.py::test_a_group_that_was_not_meant_has_no_hop": "test_journeys.py::test_each_hop_has_its_wait_work_pause_and_state",
    "test_metrics.py::test_a_group_that_is_new_counts_what_was_pushed_before": (
        "test_metrics.py::test_counts_and_latencies_of_each_window_are_those_worked_out_by_hand"
    ),
    "test_metrics.py::test_totals_come_beside_the_windows": (
        "test_metrics.py::test_counts_and_latencies_of_each_window_are_those_worked_out_by_hand"
    ),
    "test_reader.py::test_a_few_bytes_change_nothing_but_what_they_mean[allow": (
        "test_reader.py::test_a_few_bytes_change_nothing_but_what_they_mean"
    ),
    "test_running.py::test_rows_that_an_expression_has_no_value_for": (
        "test_running.py::test_a_payload_that_is_no_json_is_not_replayed_and_never_becomes_another_message"
    ),
    "test_running.py::test_messages_that_were_deleted_from_the_log": (
        "test_running.py::test_the_archive_goes_on_where_it_was_and_a_group_follows_it_and_the_server_knows_of_the_run"
    ),
    "test_second_night.py::test_a_second_archive_asks_no_more": (
        "test_second_night.py::test_a_second_archive_opens_no_file_of_queues_that_have_not_changed_and_an_audit_opens_all"
    ),
    "test_traces_missing.py::test_messages_without_a_trace": "test_traces_missing.py::test_a_journey_over_two_messages_is_trace_enough",
}
"""On Spark, whole runs of what the pipelines' own functions are held to, and the other way round."""

PLANS = "unit/store/postgres/test_plans.py::test_no_verb_walks_a_table_that_grows_and_hot_ones_ride_their_index"
RANGES = "unit/store/postgres/test_plans.py::test_ranges_of_the_log_are_read_by_an_index"
FIRST = "unit/store/postgres/test_plans.py::test_what_comes_first_of_a_range_is_read_by_an_index"
WATCHING = "unit/store/postgres/test_plans.py::test_watching_finds_its_queues_by_name"
STATEMENTS = "unit/store/postgres/test_plans.py::test_no_statement_of_the_files_walks_a_table_that_grows"
DOCUMENT = "spec/test_round_trips.py::test_huge_and_deep_texts_are_no_trouble"
UNPROVEN = "access/test_presence.py::test_a_file_that_proves_nothing_is_not_used"
BURIAL = "unit/store/test_burial_cost.py::test_a_pop_costs_the_same_however_many_leases_ran_out_with_their_last_attempt"
BURIED = "unit/store/test_burial_cost.py::test_a_pass_in_the_background_buries_as_many_as_it_is_told_to"
LETTERS = "unit/store/test_letters_cost.py::test_twice_as_many_letters_take_about_twice_the_work"
CLAIM = "unit/store/test_claim_cost.py::test_one_claim_costs_the_same_however_many_partitions_are_blocked"

OTHERS = {
    **{
        f"{test}[{state}": test
        for test in (PLANS, STATEMENTS, RANGES, FIRST, WATCHING)
        for state in ("analyzed", "one row", "truncated")
    },
    **{f"{DOCUMENT}[{text}": DOCUMENT for text in ("lines of open brackets", "many unknown queues", "many circles")},
    **{f"{UNPROVEN}[{how}": UNPROVEN for how in ("moved", "unlink", "loosened")},
    f"{BURIAL}[postgres-unordered": BURIAL,
    f"{BURIED}[postgres-unordered": BURIED,
    f"{LETTERS}[postgres-purge": LETTERS,
    f"{CLAIM}[postgres": CLAIM,
    "bench/test_client_bench.py::test_the_client_is_measured_beside_the_same_requests_by_hand": (
        "bench/test_client_bench.py::test_the_client_and_the_requests_by_hand_push_the_same_messages"
    ),
    "bench/test_engine_bench.py::test_the_steps_run_on_postgresql_too": (
        "bench/test_engine_bench.py::test_every_step_reports_its_rates_and_ratios_on_sqlite"
    ),
    "bench/test_peers_bench.py::test_a_peer_takes_every_load_durably_and_loses_nothing": (
        "bench/test_peers_bench.py::test_a_system_that_is_not_installed_is_left_out_and_the_report_says_how_to_install_it"
    ),
    "bench/test_size_bench.py::test_a_case_tells_what_the_bystander_felt": (
        "bench/test_size_bench.py::test_a_stall_and_the_medians_of_the_rounds_are_told"
    ),
    "engine/test_shredding.py::test_keys_wrapped_by_an_old_master_key_are_in_no_file_once_they_are_rewrapped[postgres": (
        "engine/test_shredding.py::test_shredded_keys_are_in_no_file_of_the_store"
    ),
    "serve/test_workers.py::test_a_signal_while_the_first_child_starts_stops_it_in_order[postgres": (
        "serve/test_workers.py::test_a_signal_while_the_first_child_starts_stops_it_in_order"
    ),
    "serve/test_workers.py::test_all_workers_on_postgresql_serve_one_port": "serve/test_workers.py::test_all_workers_serve_one_port",
    "serve/test_workers.py::test_a_worker_on_postgresql_that_dies_is_replaced": (
        "serve/test_workers.py::test_I9_what_a_killed_worker_held_comes_again_from_the_other_and_it_is_replaced"
    ),
    "unit/store/postgres/test_group_races.py::test_pops_beside_deletions_of_their_group_and_queue": (
        "unit/store/postgres/test_group_races.py::test_a_deleted_queue_is_swept_whole"
    ),
}
"""Variants of a test whose other variants run, PostgreSQL where SQLite has the same code above it, and benches beside one of their kind."""

HELD_BY: dict[str, str] = {
    f"tests/{folder}{test}": f"tests/{folder}{holder}"
    for folder, tests in (("browser/", BROWSER), ("spark/", SPARK), ("", OTHERS))
    for test, holder in tests.items()
}
"""The beginnings of the ids of all these tests, and which test holds the line by default."""


def held_by_others(nodeids: Iterable[str]) -> set[str]:
    """Those of the tests that run with --all only."""
    beginnings = tuple(HELD_BY)
    return {nodeid for nodeid in nodeids if nodeid.startswith(beginnings)}
