"""In which module the function `run` of each stage is. Strings: a stage is imported only when it runs."""

from __future__ import annotations

from collections.abc import Mapping

STAGE_MODULES: Mapping[str, str] = {
    "adopt-case": "opmatrix.search.adopt_case",
    "cases": "opmatrix.judge.cases",
    "check-declaration": "opmatrix.declaration.check_declaration",
    "codegen": "opmatrix.codegen.write_code",
    "compare-exports": "opmatrix.export.compare_exports",
    "compat": "opmatrix.torch_checks.compat",
    "compile": "opmatrix.toolchain.compile",
    "data": "opmatrix.data.write_data",
    "dist": "opmatrix.wheel.dist",
    "draw-inputs": "opmatrix.search.draw_inputs",
    "environment": "opmatrix.environments.install",
    "export": "opmatrix.export.write_models",
    "export-node": "opmatrix.export.write_node_models",
    "link-together": "opmatrix.toolchain.link_together",
    "link-wheel": "opmatrix.wheel.link",
    "operator-pages": "opmatrix.report.operator_pages",
    "ort-fuzz": "opmatrix.ort_checks.fuzz_stage",
    "probe-ort": "opmatrix.ort_checks.probe",
    "probe-torch": "opmatrix.export.probe",
    "publish": "opmatrix.export.publish",
    "races": "opmatrix.ort_checks.races",
    "register": "opmatrix.torch_checks.register",
    "report": "opmatrix.report.write_report",
    "sanitize": "opmatrix.ort_checks.sanitize",
    "save-case": "opmatrix.ort_checks.save_case",
    "tolerances": "opmatrix.ort_checks.tolerances",
    "verify": "opmatrix.ort_checks.verify",
}
