"""ATen operators as overrides, from the output of `aten_process`."""

from __future__ import annotations

from typing import Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.scaffold.new_operator import from_aten
from opmatrix.spec import FromKernel, Override, SameAs


def facts(*schemas: str, shape: tuple[int, ...] = (3, 4), outputs: tuple[tuple[tuple[int, ...], str], ...] = ()) -> Any:
    runs = {"shape": list(shape), "outputs": [{"shape": list(s), "dtype": d} for s, d in outputs]} if outputs else None
    by_overload = {s.partition("(")[0].partition(".")[2]: s for s in schemas}
    return {"torch": "2.13.0", "schemas": by_overload, "runs": dict.fromkeys(by_overload, runs), "near": ["aten::sinh"]}


F32 = (((3, 4), "float32"),)


def test_an_operator_of_torch_is_overridden() -> None:
    draft = from_aten(facts("aten::sinh(Tensor self) -> Tensor", outputs=F32), "aten::sinh", domain="my.aten")
    assert draft.aten == "aten::sinh"
    torch = draft.spec.torch
    assert torch and torch.name == "aten::sinh" and torch.overrides == (Override(name="aten::sinh"),)
    assert [i.name for i in draft.spec.inputs] == ["x"] and draft.spec.onnx.op_type == "Sinh"


def test_an_argument_that_is_no_attribute_is_left_out_if_it_has_a_default() -> None:
    text = (
        "aten::softmax_like(Tensor self, int dim, Scalar beta=1, SymInt[2] size=0, ScalarType? dtype=None, "
        "int? n=None, MemoryFormat f=contiguous_format) -> Tensor"
    )
    draft = from_aten(facts(text, outputs=F32), "aten::softmax_like", domain="my.aten")
    assert [(a.name, a.kind, a.default) for a in draft.spec.attributes] == [
        ("dim", "int", None), ("beta", "int", 1), ("size", "ints", (0, 0)),
    ]  # fmt: skip
    assert "dtype, n, f" in draft.notes[0] and draft.aten


def test_outputs_have_the_types_of_torchs() -> None:
    text = "aten::split_up(Tensor self, Tensor other) -> (Tensor values, Tensor indices)"
    draft = from_aten(facts(text, outputs=(((3, 4), "float32"), ((12,), "int64"))), "aten::split_up", domain="my.aten")
    assert [(o.name, o.type, o.shape) for o in draft.spec.outputs] == [
        ("values", "T", SameAs(input="x")), ("indices", "int64", FromKernel(rank=1)),
    ]  # fmt: skip


def test_a_reserved_name_gets_a_prefix() -> None:
    draft = from_aten(facts("aten::sqrt(Tensor self) -> Tensor", outputs=F32), "aten::sqrt", domain="my.aten")
    assert (draft.spec.name, draft.spec.onnx.op_type) == ("aten_sqrt", "Sqrt")


@pytest.mark.parametrize(
    ("found", "name", "message"),
    [
        (
            facts(),
            "torchvision::nms",
            "--override takes torch's own operators, aten::name, and 'torchvision::nms' is of",
        ),
        (facts(), "aten::sinnh", "torch 2.13.0 has no operator 'aten::sinnh'; did you mean 'aten::sinh'?"),
        (facts("aten::add.Tensor(Tensor self, Tensor other) -> Tensor"), "aten::add", "without a default overload"),
        (
            facts("aten::sum(Tensor self) -> Tensor", "aten::sum.dim(Tensor self, int[1] dim) -> Tensor"),
            "aten::sum.dim",
            "the overload 'dim' of aten::sum cannot be overridden: .* torch 2.13.0 has aten::sum.default, ",
        ),
        (
            facts("aten::relu_(Tensor(a!) self) -> Tensor(a!)"),
            "aten::relu_",
            "column 13: .*override that one, which returns",
        ),
        (facts("aten::f(Tensor self, int? n) -> Tensor"), "aten::f", "int.* may be None"),
        (facts("aten::f(Tensor self, int dim, Tensor index) -> Tensor"), "aten::f", "it comes before a tensor"),
        (facts("aten::f(Tensor self) -> Tensor[]"), "aten::f", "any number of outputs"),
        (facts("aten::f(int n) -> Tensor"), "aten::f", "no argument is a Tensor"),
    ],
)
def test_an_operator_that_cannot_be_overridden_is_refused(found: Any, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_aten(found, name, domain="my.aten")
