"""The features of torch that depend on its version. No other module compares versions for them.

A check that needs a missing feature does not fail: its manifest has `Feature.skip_reason`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from opmatrix.version import older


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A feature of torch, its first version, and why it matters."""

    version: str
    reason: str

    @property
    def available(self) -> bool:
        """Whether the running torch has it."""
        return not older(torch.__version__, self.version)

    @property
    def skip_reason(self) -> str:
        """The entry in a manifest for a check that needs it."""
        return f"skipped: needs torch {self.version}"


REGISTRATION = Feature(
    version="2.4",
    reason="torch.library.register_fake, register_autograd and custom_op; before, a fake kernel is one for Meta",
)
OPCHECK = Feature(version="2.4", reason="torch.library.opcheck, which tests the functions of REGISTRATION")
BATCHING = Feature(version="2.5", reason="torch.library.register_vmap")
AOT_INDUCTOR = Feature(version="2.6", reason="torch._inductor.aoti_compile_and_package and aoti_load_package")
QUIET_EXPORT = Feature(version="2.1", reason="2.0 prints a page of diagnostics on each export, whatever happened")
DYNAMO = Feature(version="2.6", reason="the first torch.onnx.export with dynamo=True and custom_translation_table=")
DYNAMO_ARGUMENT = Feature(
    version="2.1", reason="the first torch.onnx.export with dynamo=, which must be False for the legacy exporter"
)
DIMENSION_NAMES = Feature(
    version="2.7", reason="before, the exporter leaves its own names, s0 and s1, to the sizes of a captured program"
)
TYPED_RESULTS = Feature(
    version="2.0",
    reason="before, the exporter keeps of a type that a symbolic function sets no more than dtype and rank",
)
