"""The features of torch that depend on its version. No other module compares versions for them.

A check that needs a missing feature does not fail: its manifest has `Feature.skip_reason`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from opmatrix.basics.version import minor, older
from opmatrix.declaration.load import Operator
from opmatrix.project.dtypes import FLOAT8
from opmatrix.signature.signature import model_dtypes


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


def why_no_dtype(dtypes: Iterable[str]) -> str:
    """Return which of these dtypes the running torch does not have, or "": float8 came with 2.1 and 2.2, uint16 with
    2.3."""
    lacking = [dtype for dtype in dict.fromkeys(dtypes) if dtype != "string" and not hasattr(torch, dtype)]
    return f"torch {minor(torch.__version__)} has no {', '.join(lacking)}" if lacking else ""


def with_known_dtypes(operator: Operator) -> tuple[Operator, str]:
    """Return an operator without the dtypes that the running torch does not have, nor the models of these, and why they
    are missing, or "". All models are missing where an input or output has no other dtype."""
    spec = operator.spec
    parts = [*(part.type for part in spec.inputs), *(part.type for part in spec.outputs)]
    declared = dict.fromkeys(dtype for type in parts for dtype in spec.types.get(type, (type,)))
    return _without(operator, [d for d in declared if why_no_dtype([d])]), why_no_dtype(declared)


def differentiable(operator: Operator) -> Operator:
    """Return an operator without float8, in which torch computes nothing and so no gradient."""
    return _without(operator, FLOAT8)


def _without(operator: Operator, dtypes: Sequence[str]) -> Operator:
    spec = operator.spec
    types = {variable: tuple(d for d in known if d not in dtypes) for variable, known in spec.types.items()}
    models = tuple(model for model in operator.models if not {*dtypes} & {*model_dtypes(spec, model)})
    return replace(operator, spec=replace(spec, types=types), models=models) if dtypes else operator
