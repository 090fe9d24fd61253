"""The faults that a build must survive, each with the tests that plant it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FAULTS: dict[str, tuple[str, ...]] = {
    "input edited while its step runs": (
        "test_rebuild::test_an_input_edited_while_the_step_runs",
        "test_rebuild::test_an_input_edited_and_reverted_while_the_step_runs",
    ),
    "output truncated, edited by hand, or another file": (
        "test_rebuild::test_an_output_that_another_program_wrote",
        "test_rebuild::test_an_output_that_something_else_wrote_is_made_again",
        "test_rebuild::test_an_output_that_the_step_itself_wrote_stays",
    ),
    "process ended with 0 by code of a step": (
        "test_rebuild::test_a_step_whose_code_ends_the_process_with_0_has_failed",
        "test_rebuild::test_a_record_is_gone_while_its_step_runs",
    ),
    "output deleted": ("test_rebuild::test_a_deleted_output",),
    "flag or command changed": (
        "test_rebuild::test_another_configuration_or_command",
        "test_what_runs::test_steps_that_run_after_a_change",
    ),
    "older time stamp restored": (
        "test_rebuild::test_other_content_with_an_older_time_stamp",
        "test_real_faults::test_other_content_of_a_kernel_with_an_older_time_stamp",
    ),
    "same time stamp and size, new content": ("test_rebuild::test_an_edit_that_keeps_size_and_time_stamp",),
    "touch": ("test_rebuild::test_touch_runs_nothing",),
    "branch switched and back": ("test_faults::test_a_branch_is_switched_and_switched_back",),
    "operator removed": ("test_rebuild::test_outputs_of_a_removed_operator_are_removed",),
    "operator renamed": ("test_faults::test_an_operator_is_renamed",),
    "a declaration that ends the process that reads it": (
        "test_broken_operator::test_the_others_go_on_and_the_run_fails",
        "test_broken_operator::test_what_was_built_for_it_stays",
    ),
    "header edited": (
        "test_what_runs::test_steps_that_run_after_a_change",
        "test_real_faults::test_a_header_of_onnx_runtime_is_edited",
        "test_real_faults::test_a_header_of_the_system_is_replaced",
    ),
    "header added in front in the include path": ("test_real_faults::test_a_new_header_earlier_in_the_include_path",),
    "compiler replaced": ("test_what_runs::test_another_compiler_with_equal_libraries",),
    "torch, ONNX Runtime, onnx or onnxscript changed": (
        "test_what_runs::test_steps_that_would_run_for_another_version",
    ),
    "SIGINT, SIGTERM, SIGKILL at any moment": (
        "test_faults::test_killed_at_random_moments",
        "test_real_faults::test_killed_at_random_moments_of_real_stages",
        "test_run::test_a_killed_run_keeps_finished_steps_and_leaves_no_process",
        "test_run::test_a_server_that_still_imports_ends_with_the_run",
    ),
    "a step killed alone": ("test_faults::test_a_killed_step_is_a_failed_step",),
    "a server killed alone": ("test_run::test_a_killed_server_is_a_failed_step",),
    "killed while it writes, then reverted": ("test_faults::test_a_source_is_reverted_after_a_kill_during_a_write",),
    "stale lock": ("test_faults::test_a_stale_lock_file_does_not_block_a_run",),
    "two runs at once": (
        "test_faults::test_two_runs_at_once",
        "test_run::test_the_second_of_two_runs_names_the_first",
    ),
    "disk full": (
        "test_faults::test_a_full_disk",
        "test_faults::test_a_disk_without_room_for_logs",
        "test_faults::test_a_disk_too_full_for_the_state",
    ),
    "state database damaged or deleted": (
        "test_faults::test_a_damaged_state_database",
        "test_faults::test_a_state_database_damaged_at_a_byte_that_opens",
    ),
    "clock set": ("test_faults::test_the_clock_is_set",),
    "output tampered with between two steps": ("test_faults::test_an_output_is_changed_between_two_steps",),
    "spaces and umlauts in the path": (
        "test_real_faults::test_a_path_with_spaces_and_umlauts",
        "test_rebuild::test_a_moved_project_stays_up_to_date",
    ),
    "read-only checkout": ("test_faults::test_a_read_only_checkout",),
    "output without end": ("test_isolation::test_a_step_that_prints_without_end",),
    "memory without end": ("test_isolation::test_a_step_that_allocates_without_limit",),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_has_its_tests(fault: str) -> None:
    for name in FAULTS[fault]:
        module, _, function = name.partition("::")
        tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
