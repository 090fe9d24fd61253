"""Which tests run each night instead of for each change: `tox run -m nightly`. Each rarely fails, and takes long.

A pattern names tests as pytest prints them, without "tests/". With each is a test of the same kind that every change
runs, one of KEPT or one that no pattern names: "[...]" is one of the same function, "::..." one of the same file. The
rows of tests/faults that run each night have ``nightly = true``.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

NIGHTLY = {
    # Pages that are followed command by command; every change follows those below, to which README sends.
    "docs/test_pages.py::test_a_page_is_true[*": "[docs/quick-start.md]",
    "docs/test_pages.py::test_a_page_begins_alike_in_a_clone_and_with_the_installed_package[*": "[docs/quick-start.md]",
    # Projects with operators of others, verified by an installed opmatrix.
    "examples/test_borrowed.py::*": "::test_an_operator_is_verified",
    "examples/test_originals.py::test_every_cell_is_verified[*": "::test_an_operator_is_verified_*",
    "examples/test_originals.py::test_a_kernel_at_v4[*": (
        "operators/test_emulated_levels.py::test_a_kernel_at_v4[group_norm]"
    ),
    "examples/test_originals.py::test_the_original_node_runs[*": "::test_an_operator_is_verified_*",
    # Programs that measure; every change runs that of its size.
    "benchmarks/test_benchmarks.py::test_a_program_runs[*": "[structure]",
    "benchmarks/test_benchmarks.py::test_other_seeds_find_red_and_weak_operators": "::test_faults_are_distinguished",
    "benchmarks/test_mistakes.py::*": "::*[compile-error]",
    # A version between two rows of the matrix; each change installs the wheel and uses it.
    "test_installed.py::test_a_version_between_two_rows_is_measured_in_a_project": "::test_the_project_uses_the_wheel",
    # Other versions; every change runs torch 1.13 and 2.6 (own libraries; without and with the dynamo exporter).
    "other_versions/*::*[2.0*": "other_versions/test_old_torch.py::*[1.13*",
    "other_versions/*::*[2.9*": "other_versions/test_old_torch.py::*[2.6*",
    "other_versions/*::*[2.15*": "other_versions/test_old_torch.py::*[2.6*",
    "other_versions/*::*[1.21]": "[1.16]",
    "other_versions/test_versions.py::test_both_exporters_of_several_torches_give_the_same_nodes": (
        "other_versions/test_old_torch.py::test_all_torches_write_the_same_nodes[2.6*"
    ),
    "other_versions/test_versions.py::test_one_library_serves_every_onnx_runtime": (
        "wheel/test_use.py::test_one_wheel_serves_older_onnx_runtimes[1.16]"
    ),
    "wheel/test_use.py::test_one_wheel_serves_older_onnx_runtimes[*": "[1.16]",
    # Another torch from 2.9 on is a download of 900 MB that nothing else in a change needs. The same program, here:
    "wheel/test_use.py::test_one_wheel_serves_other_torches[*": "::test_a_model_is_trained_exported_and_run",
    # One capability of a declaration, once more with a second binding, exporter, dtype or fault.
    "operators/*::test_the_classic_binding_computes_the_same": (
        "operators/test_optional_attributes.py::test_the_classic_binding_computes_the_same"
    ),
    "scaffold/test_generated_operators.py::*": "::test_each_*[0]",
    "operators/test_backward_operator.py::*": "::test_a_wrong_kernel_of_the_gradient",
    "operators/test_emulated_levels.py::*[dual_residual]": "[group_norm]",
    "operators/test_dtypes.py::test_calls_in_torch[four_bits_in_torch-*": "[four_bits_in_torch-op(w([[-9, 7]]), None)]",
    "operators/test_dtypes.py::test_calls_in_torch[halves-*": "[halves-call('float64', 'float64')]",
    "operators/test_in_place.py::*": "::test_the_arguments_are_written",
    # A kernel that hangs takes 15 s in each of its steps; each change runs a step that hangs.
    "operators/test_isolation.py::test_a_fault_in_one_kernel[never ends]": (
        "incremental/test_run.py::test_steps_that_die_do_not_stop_the_others[onnx]"
    ),
    "faults/*_compat.toml::*": "torch_checks/test_compat.py::test_a_batching_rule_that_ignores_in_dims",
    "operators/test_sanitize.py::test_no_operator_has_a_fault[*": "[dual_residual]",
    "operators/test_races.py::*": "faults/sanitize.toml::a static variable *",
    "operators/test_seeds.py::test_the_row_of_doit_compat[*": "[]",
    "operators/test_written_schema.py::test_no_exporter_drops_another_value[*": "[dynamo-inplace=True*",
    # Each change computes the rows in the tests of their faults, and these without a fault. All take 26 CPU s.
    "torch_checks/test_compat.py::test_the_rows_of_an_operator_without_a_fault": "::test_one_call_for_all_samples[*",
    "torch_checks/test_property_test.py::*": "::*[strides]",
    "native/test_simd.py::test_vectors[*": "[g++-3]",
    "native/test_simd.py::test_errors_of_functions[*": "[g++-3]",
    # Whole runs: kills at further moments, all steps elsewhere, workers, mutants, peers.
    "addons/bench/test_run.py::*": "::test_an_operator_and_its_peers",
    "export/test_skip_decomposition.py::*": "::*[nms-custom]",
    "incremental/test_faults.py::test_killed_at_random_moments[*": "[2]",
    # Each change interrupts a real build, and kills small steps (the row above); one kill of all stages takes 31 CPU s.
    "incremental/test_real_faults.py::test_killed_at_random_moments_of_real_stages": (
        "toolchain/test_compile.py::test_an_interrupted_build_is_repaired"
    ),
    # The other compares the outputs of one step of three groups as well.
    "incremental/test_steps_travel.py::test_every_kind_of_step_gives_the_same_bytes_elsewhere": (
        "::test_a_step_that_reads_more_than_it_names_is_found[*"
    ),
    "addons/mutate/test_run_mutants.py::*": "::test_what_becomes_of_a_planted_mutant[killed*",
    "toolchain/test_compile.py::test_a_damaged_record_of_an_earlier_run_compiles_everything[*": "[made.json]",
    "report/in_browser/*::test_axe_finds_nothing*": "::test_axe_finds_nothing*[light-1280]",
}
KEPT = (
    "docs/test_pages.py::*[docs/quick-start.md]",
    "docs/test_pages.py::*[docs/project.md]",
    "docs/test_pages.py::*[docs/check.md]",
    "docs/test_pages.py::*[docs/how-to/optional-inputs.md]",
    "benchmarks/test_benchmarks.py::test_a_program_runs[structure]",
    "benchmarks/test_mistakes.py::test_the_last_screen_names_the_mistake[compile-error]",
    "addons/bench/test_run.py::test_an_operator_and_its_peers",
    "wheel/test_use.py::test_one_wheel_serves_older_onnx_runtimes[1.16]",
    "examples/test_borrowed.py::test_an_operator_is_verified",
    "operators/test_dtypes.py::test_calls_in_torch[four_bits_in_torch-op(w([[-9, 7]]), None)]",
    "operators/test_dtypes.py::test_calls_in_torch[halves-call('float64', 'float64')]",
    "operators/test_seeds.py::test_the_row_of_doit_compat[]",
    "operators/test_optional_attributes.py::test_the_classic_binding_computes_the_same",
    "operators/test_written_schema.py::test_no_exporter_drops_another_value[dynamo-inplace=True*",
    "operators/test_backward_operator.py::test_its_gradient_is_verified",
    "operators/test_backward_operator.py::test_a_wrong_kernel_of_the_gradient",
    "operators/test_in_place.py::test_every_cell_is_verified[*",
    "operators/test_in_place.py::test_the_arguments_are_written",
    "scaffold/test_generated_operators.py::test_each_*[0]",
    "scaffold/test_generated_operators.py::*[kinds]",
    "operators/test_sanitize.py::test_no_operator_has_a_fault[custom_op_two]",
    "operators/test_sanitize.py::test_no_operator_has_a_fault[dual_residual]",
    "operators/test_races.py::test_a_kernel_without_a_race",
    "torch_checks/test_property_test.py::test_a_wrong_kernel_is_found_and_its_input_shrunk[strides]",
    "export/test_skip_decomposition.py::*[nms-custom]",
    "incremental/test_faults.py::test_killed_at_random_moments[2]",
    "addons/mutate/test_run_mutants.py::test_what_becomes_of_a_planted_mutant[killed*",
    "native/test_simd.py::*[g++-3]",
    "toolchain/test_compile.py::*[made.json]",
    "report/in_browser/*::test_axe_finds_nothing*[light-1280]",
)


def is_nightly(test: str) -> bool:
    """Return whether a test, ``docs/test_pages.py::test_a_page_is_true[docs/ship.md]``, runs each night alone."""
    return bool(matching(NIGHTLY, [test]) and not matching(KEPT, [test]))


def counterpart(pattern: str) -> str:
    """Return the pattern of the tests of the same kind that every change runs."""
    kept = NIGHTLY[pattern]
    return f"{pattern.partition(kept[:1])[0]}{kept}" if kept.startswith(("[", "::")) else kept


def matching(patterns: Iterable[str], tests: Iterable[str]) -> list[str]:
    """Return the tests that one of the patterns names."""
    globs = [pattern.replace("[", "[[]") for pattern in patterns]
    return [test for test in tests if any(fnmatchcase(test, glob) for glob in globs)]
