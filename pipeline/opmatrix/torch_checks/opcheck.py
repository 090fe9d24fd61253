"""Hold a compiled torch library against its declaration: opcheck."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from opmatrix import step_log
from opmatrix.declaration.load import Operator
from opmatrix.errors import RegisterError
from opmatrix.export.generated_modules import GeneratedModules, load_generated
from opmatrix.project.paths import Paths
from opmatrix.spec import FromKernel
from opmatrix.torch_checks.opcheck_samples import OpcheckSample, complete
from opmatrix.torch_library import aten_overloads, features
from opmatrix.torch_library.call import as_tuple, torch_attributes
from opmatrix.torch_library.load_library import LoadedLibrary

OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def results(layout: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, str]]:
    """Return what was proved; register the fake kernel and the gradient. Raises RegisterError for what was not."""
    assert operator.spec.torch is not None
    overridden = aten_overloads.overloads(operator.spec) if operator.spec.torch.overrides else ()
    generated = None if overridden else load_generated(layout, operator.name)
    return (
        [{"overload": str(overload), "check": "overridden"} for overload in overridden]
        + [
            {"case": sample.case.name, "check": test}
            for sample in list(complete(layout, operator, loaded, generated))
            for test in (_opcheck if features.OPCHECK.available else _fake_kernel)(operator, sample, loaded, generated)
        ]
        + skipped()
    )


def skipped() -> list[dict[str, str]]:
    """Return what this torch cannot check."""
    if features.OPCHECK.available:
        return []
    return [{"check": test, "skipped": features.OPCHECK.skip_reason} for test in OPCHECKS]


def _fake_kernel(
    operator: Operator, sample: OpcheckSample, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[str]:
    """Hold the fake kernel against the compiled one, where there is no opcheck: dtypes, ranks and known sizes."""
    if generated is None or (operator.spec.torch and operator.spec.torch.python):
        return  # torch's own, or one that comes as Python has it
    attributes = torch_attributes(operator.spec, sample.model)
    real, fake = (as_tuple(call(*sample.arguments, **attributes)) for call in (loaded.overload, generated.fake.fake))
    for output, a, b in zip(operator.spec.outputs, real, fake, strict=True):
        known = not isinstance(output.shape, FromKernel)
        if a.dtype != b.dtype or a.dim() != b.dim() or (known and a.shape != b.shape):
            raise RegisterError(
                f"{operator.name}-{sample.case.name}: the fake kernel gives {output.name} as {b.dtype} of shape "
                f"{tuple(b.shape)}, the compiled one as {a.dtype} of shape {tuple(a.shape)}. {_remedy(operator)}"
            )
    yield "fake kernel"


def _opcheck(
    operator: Operator, sample: OpcheckSample, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[str]:
    """Yield the name of each of opcheck's tests."""
    step_log.now_running(f"opcheck of case {sample.case.name}")
    outcomes = torch.library.opcheck(
        loaded.overload,
        tuple(sample.arguments),
        torch_attributes(operator.spec, sample.model),
        test_utils=OPCHECKS,
        raise_exception=False,
    )
    for test, outcome in outcomes.items():
        if outcome != "SUCCESS":
            raise RegisterError(
                f"{operator.name}-{sample.case.name}: torch.library.opcheck's {test} says: {outcome}. "
                f"{_remedy(operator)}"
            )
        yield test


def _remedy(operator: Operator) -> str:
    if operator.spec.torch and operator.spec.torch.overrides:
        return f"It is torch's own: choose another case, or bound the override in ops/{operator.name}/spec.py"
    return (
        f"The binding, the fake kernel or the gradient does not do what the schema promises: mend torch_op.py, or "
        f"write them anew with: python -m opmatrix codegen {operator.name}, then compile {operator.name}"
    )
