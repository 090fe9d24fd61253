"""The faults that a build must survive, each with the tests that plant it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FAULTS = """
input edited while its step runs: rebuild::test_an_input_edited_while_the_step_runs
output truncated, edited by hand, or another file: rebuild::test_what_a_change_runs,
  rebuild::test_an_output_that_something_else_wrote_is_made_again,
  rebuild::test_an_output_that_the_step_itself_wrote_stays
process ended with 0 by code of a step: rebuild::test_a_step_whose_code_ends_the_process_with_0_has_failed,
  rebuild::test_a_record_is_gone_while_its_step_runs
output deleted: rebuild::test_what_a_change_runs
flag or command changed: rebuild::test_what_a_change_runs, what_runs::test_steps_that_run_after_a_change
older time stamp restored: rebuild::test_what_a_change_runs,
  real_faults::test_other_content_of_a_kernel_with_an_older_time_stamp
same time stamp and size, new content: rebuild::test_an_edit_that_keeps_size_and_time_stamp
touch: rebuild::test_what_a_change_runs
branch switched and back: faults::test_a_branch_is_switched_and_switched_back
operator removed: rebuild::test_outputs_of_a_removed_operator_are_removed
operator renamed: faults::test_an_operator_is_renamed
a declaration that ends the process that reads it: broken_operator::test_the_others_go_on_and_the_run_fails,
  broken_operator::test_what_was_built_for_it_stays
header edited: what_runs::test_steps_that_run_after_a_change, real_faults::test_a_header_of_onnx_runtime_is_edited,
  shadowed_headers::test_a_header_of_the_system_is_replaced
header added in front in the include path: real_faults::test_a_new_header_earlier_in_the_include_path
compiler replaced: what_runs::test_another_compiler_with_equal_libraries
torch, ONNX Runtime, onnx or onnxscript changed: what_runs::test_steps_that_would_run_for_another_version
SIGINT, SIGTERM, SIGKILL at any moment: faults::test_killed_at_random_moments,
  real_faults::test_killed_at_random_moments_of_real_stages,
  run::test_a_killed_run_keeps_finished_steps_and_leaves_no_process,
  run::test_a_server_that_still_imports_ends_with_the_run
a step killed alone: run::test_a_killed_process_is_a_failed_step
a server killed alone: run::test_a_killed_process_is_a_failed_step
killed while it writes, then reverted: faults::test_a_source_is_reverted_after_a_kill_during_a_write
stale lock: faults::test_a_stale_lock_file_does_not_block_a_run
two runs at once: run::test_the_second_of_two_runs_names_the_first
disk full: faults::test_a_full_disk, faults::test_a_disk_without_room_for_logs,
  faults::test_a_disk_too_full_for_the_state
state database damaged or deleted: faults::test_a_damaged_state_database,
  faults::test_a_state_database_damaged_at_a_byte_that_opens
clock set: faults::test_the_clock_is_set
output tampered with between two steps: faults::test_an_output_is_changed_between_two_steps
spaces and umlauts in the path: real_faults::test_a_path_with_spaces_and_umlauts,
  rebuild::test_a_moved_project_stays_up_to_date
read-only checkout: faults::test_a_read_only_checkout
output without end: isolation::test_a_step_that_prints_without_end
memory without end: isolation::test_a_step_that_allocates_without_limit
"""
BY_FAULT = dict(line.rsplit(": ", 1) for line in FAULTS.replace(",\n ", ",").strip().splitlines())


@pytest.mark.parametrize("fault", BY_FAULT)
def test_each_fault_has_its_tests(fault: str) -> None:
    for name in BY_FAULT[fault].split(", "):
        module, _, function = name.partition("::")
        tree = ast.parse(Path(__file__).with_name(f"test_{module}.py").read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
