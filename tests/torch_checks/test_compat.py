"""The rows of `doit compat` find planted faults: in a fake kernel, in rules for vmap and autocast, in a gradient. `doit
compat` of operators with float8: torch computes nothing in it, so no gradient is taken of it or summed.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from opmatrix.basics.errors import CompatError
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import (
    Attribute,
    Case,
    FromKernel,
    MemoryLayout,
    Model,
    OpSpec,
    Output,
    Override,
    Random,
    SameAs,
    TorchOp,
)
from opmatrix.torch_checks import compat, compat_transforms
from opmatrix.torch_checks.compat import Compat, Row
from opmatrix.torch_checks.compat_samples import bases, is_derived
from opmatrix.torch_ops import features, transforms
from opmatrix.torch_ops.call import registered_overload
from opmatrix.torch_ops.load import Gradient
from tests.support.specs import FLOATS, declare

pytestmark = pytest.mark.torch

NUMBERS = itertools.count()
SHAPE = {"x": Random(shape=(3, 4)), "w": Random(shape=(4,)), "shift": Random(shape=(4,), deviation=400.0)}
SPEC = declare(
    "scaled(x: T[..., C], w: T[C], shift: int32[C], factor=0.5) -> y: T like x",
    torch="compat_0::scaled",
    onnx="test::Scaled",
    summary="w * x * x + factor * shift.",
    types=FLOATS,
)
MODELS = tuple(
    Model(name=dtype, types={"T": dtype}, cases=(Case(name=dtype, inputs=SHAPE),)) for dtype in ("float32", "float64")
)


def kernel(x: torch.Tensor, w: torch.Tensor, shift: torch.Tensor, factor: float = 0.5) -> torch.Tensor:
    """Compute as a binding does: refuse other dtypes than the declared ones."""
    if x.dtype not in (torch.float32, torch.float64) or w.dtype != x.dtype:
        raise RuntimeError(f"scaled: x is {x.dtype}, w is {w.dtype}")
    if shift.dtype != torch.int32:
        raise RuntimeError(f"scaled: shift must be int32, got {shift.dtype}")
    return w * x * x + factor * shift


def fake(x: torch.Tensor, w: torch.Tensor, shift: torch.Tensor, factor: float = 0.5) -> torch.Tensor:
    return torch.empty_like(x)


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, w, *_ = inputs
    ctx.save_for_backward(x, w)


def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, w = ctx.saved_tensors
    return 2 * grad * w * x, (grad * x * x).reshape(-1, x.shape[-1]).sum(0), None, None


GRADIENT = Gradient(setup_context=setup_context, backward=backward, without=())


@pytest.fixture
def operator() -> Iterator[Callable[..., Compat]]:
    """Return a function that defines the operator in a namespace of its own, and prepares it."""
    libraries: list[torch.library.Library] = []

    def define(
        spec: OpSpec = SPEC,
        gradient: Gradient | None = GRADIENT,
        fake: Callable[..., Any] = fake,
        kernel: Any = kernel,
        models: Sequence[Model] = MODELS,
    ) -> Compat:
        namespace = f"compat_{next(NUMBERS)}"
        library = torch.library.Library(namespace, "DEF")
        libraries.append(library)
        library.define("scaled(Tensor x, Tensor w, Tensor shift, float factor=0.5) -> Tensor")
        library.impl("scaled", kernel, "CPU")
        torch.library.register_fake(f"{namespace}::scaled", fake, lib=library)
        assert spec.torch
        named = replace(spec, torch=replace(spec.torch, name=f"{namespace}::scaled"))
        return compat.prepare(Operator(spec=named, models=tuple(models)), gradient)

    yield define
    for library in libraries:
        library._destroy()


def row(made: Compat, name: str) -> Row:
    if name == "torch.compile":  # inductor generates no code for one call of an operator; it only takes longer
        return compat.row(name, lambda found: compat.compiled(found, backend="aot_eager"), made)
    return compat.row(name, compat.CHECKS[name], made)


@contextmanager
def further(
    made: Compat, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any] | None = None
) -> Iterator[tuple[str, torch.library.Library]]:
    """Define a further operator in the namespace of one, and give its name and library."""
    assert made.spec.torch
    namespace, name = made.spec.torch.name.partition("::")[0], schema.partition("(")[0]
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(schema)
    library.impl(name, kernel, "CPU")
    if fake:
        torch.library.register_fake(f"{namespace}::{name}", fake, lib=library)
    yield f"{namespace}::{name}", library
    library._destroy()


def test_the_rows_of_an_operator_without_a_fault(operator: Callable[..., Compat]) -> None:
    made = operator()
    found = {name: row(made, name) for name in compat.CHECKS}
    refused, packaged = found.pop("torch.func.jvp"), found.pop("AOTInductor")
    assert (packaged.outcome, packaged.detail) == ("works", "in a process that defines it, since no library does")
    mapped = found.pop("torch.vmap")
    assert (mapped.outcome, mapped.detail) == ("works", "one call per sample")
    assert {name: (one.outcome, one.detail) for name, one in found.items()} == dict.fromkeys(found, ("works", ""))
    assert (refused.outcome, refused.detail) == ("refused", f"it {transforms.NO_FORWARD_MODE}")
    assert found["torch.compile"].samples >= 8 and mapped.samples >= 8  # two dtypes, several sizes
    assert found["torch.autocast"].samples >= 8 and found["torch.func.grad"].samples == 6


def test_torch_alone_serves_no_transform_of_the_gradient(operator: Callable[..., Compat]) -> None:
    """The reason for `transforms.register_gradient`: with torch.library.register_autograd, one row fails with an error
    and the other with zeros. If this test fails, torch does it itself."""

    def save(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def formula(ctx: Any, grad: torch.Tensor) -> Any:
        return 2 * grad * ctx.saved_tensors[0]

    with further(operator(gradient=None), "plain(Tensor x) -> Tensor", lambda x: x * x) as (name, library):
        torch.library.register_autograd(name, formula, setup_context=save, lib=library)
        plain = getattr(torch.ops, name.partition("::")[0]).plain
        x = torch.ones(3)
        with pytest.raises(RuntimeError, match="it must override the setup_context"):
            torch.func.grad(lambda x: plain(x).sum())(x)
        with warnings.catch_warnings():  # of torch.jit.script, in torch's own rules for forward mode
            warnings.simplefilter("ignore")
            assert torch.func.jvp(plain, (x,), (x,))[1].eq(0).all()


@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded", "flipped"])
def test_a_case_of_another_memory_layout_keeps_it_at_other_sizes(
    operator: Callable[..., Compat], layout: MemoryLayout
) -> None:
    """torch.compile compiles again for other strides, and no operator can prevent that."""
    x = Random(shape=(3, 4), layout=layout, mean=2.0, deviation=0.0 if layout == "expanded" else 1.0)
    case = Case(name="strided", inputs={**SHAPE, "x": x})
    made = operator(gradient=None, models=[Model(name="strided", types={"T": "float32"}, cases=(case,))])
    found = row(made, "torch.compile")
    assert (found.outcome, found.detail) == ("works", "")
    assert (found.samples > 1) == (layout != "expanded"), "the values of other sizes may differ along each axis"


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (None, "torch does not have this operator"),
        (TorchOp(name="aten::relu", overrides=(Override(name="aten::relu"),)), "torch has its own operator"),
    ],
)
def test_an_operator_that_the_project_does_not_define_in_torch(owner: TorchOp | None, why: str, tmp_path: Path) -> None:
    operator = Operator(spec=replace(SPEC, torch=owner), models=MODELS)
    message = f"^scaled: {why}, and `compat` runs the operators that a project defines in torch$"
    with pytest.raises(CompatError, match=message):
        compat.run(Paths(tmp_path), operator)


def test_a_package_of_an_operator_with_an_empty_list(operator: Callable[..., Compat]) -> None:
    """torch passes None for it, 2.6 to 2.15. If this fails, torch passes the list, and the row can run such samples."""

    def total(x: torch.Tensor, more: Sequence[torch.Tensor]) -> torch.Tensor:
        return sum(more, x)

    schema = "several(Tensor x, Tensor[] more) -> Tensor"
    with further(operator(gradient=None), schema, total, lambda x, more: torch.empty_like(x)) as (name, _):
        spec = declare("several(x: T[N], more: T* like x) -> y: T like x", torch=name, types=FLOATS)
        model = Model(name="one", types={"T": "float32"}, cases=(Case(name="one", inputs={"x": Random(shape=(3,))}),))
        found = row(compat.prepare(Operator(spec=spec, models=(model,)), None), "AOTInductor")
    assert found.outcome == "refused", found.detail
    assert found.detail == "no case calls it with a value in more: in a package, torch passes None for an empty list"


def test_a_torch_without_packages(operator: Callable[..., Compat], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "AOT_INDUCTOR", replace(features.AOT_INDUCTOR, version="9.0"))
    found = row(operator(gradient=None), "AOTInductor")
    assert (found.outcome, found.detail) == ("refused", "needs torch 9.0")


def test_a_batching_rule_that_ignores_in_dims(operator: Callable[..., Compat], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        transforms, "_sample", lambda a, dim, index: a if dim is None else a.movedim(dim, 0).flatten(0, 1)[: a.size(1)]
    )
    found = row(operator(), "torch.vmap")
    assert found.outcome == "failed" and "under torch.vmap with in_dims=" in found.detail


def batched(x: torch.Tensor, w: torch.Tensor, shift: torch.Tensor, factor: float = 0.5) -> torch.Tensor:
    """Compute the same, and refuse what the declared sizes forbid."""
    if w.dim() != 1 or shift.dim() != 1 or x.dim() < 1 or x.shape[-1] != w.shape[0]:
        raise RuntimeError(f"scaled: x is {tuple(x.shape)}, w is {tuple(w.shape)}, shift is {tuple(shift.shape)}")
    return kernel(x, w, shift, factor)


def with_batch(spec: OpSpec, batch: str) -> OpSpec:
    assert spec.torch
    return replace(spec, torch=replace(spec.torch, batch=batch))


NAMED = replace(SPEC, inputs=(replace(SPEC.inputs[0], dims=("N", "C")), *SPEC.inputs[1:]))


@pytest.mark.parametrize("spec", [with_batch(SPEC, "..."), with_batch(NAMED, "N")], ids=["further", "named"])
def test_one_call_for_all_samples(operator: Callable[..., Compat], spec: OpSpec) -> None:
    made = operator(spec=spec, kernel=batched)
    found = row(made, "torch.vmap")
    assert found.outcome == "works", found.detail
    assert found.detail == "one call for all samples; one per sample where w or shift is mapped"
    assert row(made, "torch.func.grad").outcome == "works"


def test_gradients_per_sample_in_one_call(operator: Callable[..., Compat]) -> None:
    made = operator(spec=with_batch(NAMED, "N"), kernel=batched)
    call, (x, w, shift) = registered_overload(made.spec), made.samples[0].tensors
    several = torch.stack([x, x.flip(0), 2 * x])

    def loss(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor((call(x, w, shift) ** 2).sum())

    with compat_transforms._Counted(call) as counted:
        found = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(w, several)
    assert counted.count == 1
    torch.testing.assert_close(found, torch.stack([torch.func.grad(loss)(w, one) for one in several]))


@pytest.mark.parametrize(
    "arguments",
    [
        "Tensor x, Tensor? bias, Tensor[] more, int[2] factors",
        "Tensor x, int[2] factors=[3, 1], *, Tensor[] more, Tensor? bias=None",  # torch.library has no rule for these
    ],
    ids=["by position", "by keyword"],
)
def test_one_call_with_lists_and_absent_inputs(operator: Callable[..., Compat], arguments: str) -> None:
    """Both lists of tensors and lists of numbers have an axis of the samples, or None, for each item."""

    def kernel(x: Any, bias: Any = None, more: Any = (), factors: Any = (3, 1)) -> tuple[torch.Tensor, torch.Tensor]:
        found = sum(more, x * factors[0]) + (0 if bias is None else bias)
        return found, found.sum(0)

    def fake(x: Any, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.empty_like(x), x.new_empty(x.shape[1])

    x, bias = Random(shape=(3, 4)), Random(shape=(3, 1))
    given = ({"x": x, "more": (x, x)}, {"x": x, "bias": bias, "more": (x,)})
    models = tuple(
        Model(name=name, types={"T": "float32"}, attributes={"factors": (3, 1)}, cases=(Case(name=name, inputs=one),))
        for name, one in zip(("case_0", "case_1"), given, strict=True)
    )
    schema = f"several({arguments}) -> (Tensor, Tensor)"
    with further(operator(gradient=None), schema, kernel, fake) as (name, _):
        written = f"{name.partition('::')[0]}::{schema}" if "*" in arguments else ""
        spec = declare(
            "several(x: T[C, N], bias: T[C, 1]?, more: T* like x) -> y: T like x",
            Attribute(name="factors", kind="ints"),
            Output(name="total", type="T", shape=SameAs(input="x", replace={0: None})),
            torch=TorchOp(name=name, batch="N", schema=written),
            types=FLOATS,
        )
        found = row(compat.prepare(Operator(spec=spec, models=models), None), "torch.vmap")
    assert found.outcome == "works", found.detail
    assert found.detail == "one call for all samples; one per sample where bias is mapped"


def test_a_batching_rule_that_calls_once_per_sample(
    operator: Callable[..., Compat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transforms, "_one_call", lambda spec: None)
    found = row(operator(spec=with_batch(NAMED, "N"), kernel=batched, gradient=None), "torch.vmap")
    assert found.outcome == "failed" and "calls the operator 3 times, expected 1" in found.detail


def test_an_autocast_rule_that_casts_integers(operator: Callable[..., Compat], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "_floating", lambda spec, declared: {torch.float32})
    monkeypatch.setattr(transforms, "_is_cast", lambda tensor: tensor.dtype != torch.float64)
    found = row(operator(), "torch.autocast")
    assert found.outcome == "failed" and "shift" in found.detail


def test_no_autocast_rule(operator: Callable[..., Compat], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "_is_cast", lambda tensor: False)
    found = row(operator(), "torch.autocast")
    assert found.outcome == "failed" and "scaled: x is torch.bfloat16" in found.detail


def test_an_operator_without_a_gradient_refuses_instead_of_zeros(operator: Callable[..., Compat]) -> None:
    made = operator(gradient=None)
    found = row(made, "torch.func.grad")
    assert (found.outcome, found.detail) == ("refused", f"it {transforms.NO_FORMULA}")
    assert row(made, "torch.func.jvp").outcome == "refused"
    x = made.samples[0].tensors[0].clone().requires_grad_()
    with pytest.raises(RuntimeError, match=r"has no gradient: torch_op\.py has no backward"):
        made.samples[0].call(x, *made.samples[0].tensors[1:])[0].sum().backward()


def test_a_refusal_that_does_not_refuse(operator: Callable[..., Compat], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms, "register_missing_gradient", lambda spec: None)
    found = row(operator(gradient=None), "torch.func.jvp")
    assert found.outcome == "failed" and "expected an error, and it ran" in found.detail


def test_vmap_is_refused_for_sizes_that_depend_on_data(operator: Callable[..., Compat]) -> None:
    sized = replace(SPEC, outputs=(Output(name="y", type="T", shape=FromKernel(rank=2)),))
    found = row(operator(spec=sized), "torch.vmap")
    assert found.outcome == "refused"
    assert found.detail.startswith("the size of y depends on the data, so the results of a batch are no tensor")


def test_float8_has_no_gradient_and_does_not_displace_the_dtypes_that_have_one() -> None:
    dtypes = (torch.float8_e5m2, torch.float8_e4m3fnuz, torch.bfloat16, torch.float64, torch.uint8)
    assert [is_derived(torch.zeros(1, dtype=dtype)) for dtype in dtypes] == [False, False, True, True, False]
    stored = torch.ones(2).to(torch.float8_e4m3fn)
    assert torch.isfinite(compat_transforms._weighted([torch.ones(2), stored]))
    types = {"T": ("float8_e5m2", "float32")}
    spec = declare("same(x: T) -> y: T like x", torch="aten::clone", types=types, tolerances={})
    models = tuple(
        Model(name=dtype, types={"T": dtype}, cases=(Case(name=dtype, inputs={"x": Random(shape=(size,))}),))
        for dtype, size in (("float8_e5m2", 2), ("float32", 3))
    )
    found = bases(Operator(spec=spec, models=models))
    assert [sample.model.types["T"] for sample in found] == ["float32", "float8_e5m2"]
