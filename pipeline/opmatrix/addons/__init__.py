"""Optional features, a folder for each. The core imports none of them, and reads this table when it needs one."""

from __future__ import annotations

from collections.abc import Mapping

from opmatrix.basics.features import Feature

FEATURES: Mapping[str, Feature] = {
    "check": Feature(
        commands={"check": "opmatrix.addons.check.command:Check"},
        anywhere=("check",),
        stages={
            "check-capture": "opmatrix.addons.check.capture",
            "check-read": "opmatrix.addons.check.read",
            "check-models": "opmatrix.addons.check.parts",
            "check-run": "opmatrix.addons.check.run",
            "check-compare": "opmatrix.addons.check.compare",
        },
        stage_table="opmatrix.addons.check.stages",
        servers={
            "check": (
                "opmatrix.addons.check.read",
                "opmatrix.addons.check.run",
                "opmatrix.addons.check.compare",
                "opmatrix.ort_checks.run_case:warm_up",
            ),
        },
    ),
    "mutate": Feature(
        commands={"mutate": "opmatrix.addons.mutate.command:Mutate"},
        provides={"mutation": "opmatrix.addons.mutate.scores:as_section"},
    ),
    "bench": Feature(
        commands={"bench": "opmatrix.addons.bench.command:Bench"},
        stages={"bench": "opmatrix.addons.bench.run"},
        stage_table="opmatrix.addons.bench.stages",
        provides={"bench": "opmatrix.addons.bench.times:read_all"},
    ),
    "team": Feature(
        provides={
            "workers": "opmatrix.addons.team.on:Elsewhere",
            "signing": "opmatrix.addons.team.signing",
            "signed results": "opmatrix.addons.team.signed_results:check",
        },
    ),
    "hf_kernel": Feature(
        stages={"hf-kernel": "opmatrix.addons.hf_kernel.write_folder"},
        stage_table="opmatrix.addons.hf_kernel.stages",
    ),
}
