"""Which tests run each night instead of for each change: `tox run -m nightly`. Each rarely fails, and takes long.

A pattern names tests as pytest prints them, without "tests/". Of each kind, every change still runs one test.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

NIGHTLY = (
    # Pages that are followed command by command; every change follows those below, to which README sends.
    "docs/test_pages.py::test_a_page_is_true[*",
    "docs/test_pages.py::test_a_page_begins_alike_in_a_clone_and_with_the_installed_package[*",
    # Projects with operators of others, verified by an installed opmatrix; every change verifies ops/.
    "examples/test_borrowed.py::*",
    "examples/test_originals.py::test_every_cell_is_verified[*",
    "examples/test_originals.py::test_a_kernel_at_v4[*",
    "examples/test_originals.py::test_the_original_node_runs[*",
    # Programs that measure; every change runs those of its cost and of its size.
    "benchmarks/test_benchmarks.py::test_a_program_runs[*",
    "benchmarks/test_mistakes.py::*",
    # Other versions; every change runs torch 1.13 and 2.6 (own libraries; without and with the dynamo exporter).
    "other_versions/*::*[2.0*",
    "other_versions/*::*[2.9*",
    "other_versions/*::*[2.15*",
    "other_versions/*::*[1.21]",
    "other_versions/test_versions.py::test_both_exporters_of_several_torches_give_the_same_nodes",
    "other_versions/test_versions.py::test_one_library_serves_every_onnx_runtime",
    "wheel/test_use.py::test_one_wheel_serves_*",
    # One capability of a declaration, once more with a second binding, exporter, dtype or fault.
    "operators/*::test_the_classic_binding_computes_the_same",
    "scaffold/test_generated_operators.py::*",
    "operators/test_backward_operator.py::*",
    "operators/test_emulated_levels.py::*[dual_residual]",
    "operators/test_four_bits_in_torch.py::test_calls_in_torch[*",
    "operators/test_half_errors.py::*",
    "operators/test_halves.py::test_calls_in_torch[*",
    "operators/test_halves.py::test_a_gradient_that_is_wrong_in_one_dtype_is_found",
    "operators/test_in_place.py::*",
    "operators/test_isolation.py::test_a_fault_in_one_kernel[*",
    "operators/test_races.py::*",
    "operators/test_reference_in_torch.py::test_the_report_says_in_which_torch_the_reference_was_computed",
    "operators/test_sanitize.py::test_no_operator_has_a_fault[*",
    "operators/test_scalars.py::test_another_dtype_layout_or_device_is_refused[*",
    "operators/test_scalars.py::test_what_is_passed_on_is_checked[*",
    "operators/test_seeds.py::test_the_row_of_doit_compat[*",
    "operators/test_seeds.py::test_what_is_drawn_is_checked[*",
    "operators/test_sides.py::*",
    "operators/test_value_rules.py::test_a_binding_that_forgets_a_check_is_found[*",
    "operators/test_variadic_outputs.py::test_a_fault_is_found[*",
    "operators/test_written_schema.py::test_no_exporter_drops_another_value[*",
    "torch_checks/test_failing_gradients.py::test_a_gradient_of_each_kind_of_schema_replays[*",
    "torch_checks/test_failing_gradients.py::test_a_gradient_that_is_wrong_in_one_call_replays[*",
    "torch_checks/test_compat.py::test_the_rows_of_an_operator_without_a_fault",
    "torch_checks/test_property_test.py::*",
    "native/test_simd.py::test_vectors[*",
    "native/test_simd.py::test_errors_of_functions[*",
    # Whole runs: kills at further moments, all steps elsewhere, workers, mutants, peers.
    "bench/test_run.py::*",
    "cluster/test_real_steps.py::*",
    "export/test_skip_decomposition.py::*",
    "incremental/test_faults.py::test_killed_at_random_moments[*",
    "incremental/test_real_faults.py::test_killed_at_random_moments_of_real_stages",
    "incremental/test_steps_travel.py::test_every_kind_of_step_gives_the_same_bytes_elsewhere",
    "mutation/test_run_mutants.py::*",
    "toolchain/test_compile.py::test_a_damaged_record_of_an_earlier_run_compiles_everything[*",
    "report/in_browser/*::test_axe_finds_nothing*",
    "wheel/test_use.py::test_the_wheel_has_types",
    "wheel/test_pack.py::test_equal_content_gives_equal_bytes",
)
KEPT = (
    "docs/test_pages.py::*[docs/quick-start.md]",
    "docs/test_pages.py::*[docs/project.md]",
    "docs/test_pages.py::*[docs/check.md]",
    "docs/test_pages.py::*[docs/how-to/optional-inputs.md]",
    "benchmarks/test_benchmarks.py::test_a_program_runs[against]",
    "benchmarks/test_benchmarks.py::test_a_program_runs[structure]",
    "benchmarks/test_mistakes.py::test_the_last_screen_names_the_mistake[compile-error]",
    "wheel/test_use.py::test_one_wheel_serves_older_onnx_runtimes[1.16]",
    "operators/test_optional_attributes.py::test_the_classic_binding_computes_the_same",
    "operators/test_written_schema.py::test_no_exporter_drops_another_value[dynamo-inplace=True*",
    "operators/test_backward_operator.py::test_its_gradient_is_verified",
    "operators/test_backward_operator.py::test_a_wrong_kernel_of_the_gradient",
    "operators/test_in_place.py::test_every_cell_is_verified[*",
    "operators/test_in_place.py::test_the_arguments_are_written",
    "operators/test_in_place.py::test_a_result_must_be_the_argument",
    "operators/test_isolation.py::test_a_fault_in_one_kernel[throws]",
    "operators/test_isolation.py::test_a_fault_in_one_kernel[segfaults]",
    "operators/test_races.py::test_a_race_is_found[*",
    "scaffold/test_generated_operators.py::test_each_*[0]",
    "scaffold/test_generated_operators.py::*[kinds]",
    "operators/test_races.py::test_a_kernel_without_a_race",
    "operators/test_seeds.py::test_what_is_drawn_is_checked[not*",
    "operators/test_sides.py::*[ort]",
    "operators/test_sides.py::*[torch]",
    "operators/test_value_rules.py::test_a_binding_that_forgets_a_check_is_found[end]",
    "torch_checks/test_property_test.py::test_a_wrong_kernel_is_found_and_its_input_shrunk[strides]",
    "export/test_skip_decomposition.py::*[nms-custom]",
    "incremental/test_faults.py::test_killed_at_random_moments[2]",
    "mutation/test_run_mutants.py::test_what_becomes_of_a_planted_mutant[killed*",
    "torch_checks/test_failing_gradients.py::*[in_torch-rms_scale]",
    "torch_checks/test_failing_gradients.py::*[strides]",
    "native/test_simd.py::*[g++-3]",
    "toolchain/test_compile.py::*[made.json]",
    "report/in_browser/*::test_axe_finds_nothing*[light-1280]",
)


def is_nightly(test: str) -> bool:
    """Return whether a test, ``docs/test_pages.py::test_a_page_is_true[docs/ship.md]``, runs each night alone."""
    return _is_in(NIGHTLY, test) and not _is_in(KEPT, test)


def _is_in(patterns: Iterable[str], test: str) -> bool:
    return any(fnmatchcase(test, pattern.replace("[", "[[]")) for pattern in patterns)
