"""A torch schema as a declaration, or every reason why it cannot be declared. ATen operators as overrides, from the
output of `aten_process`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.scaffold.from_torch_schema import from_schema
from opmatrix.scaffold.new_operator import from_aten
from opmatrix.signature import parser
from opmatrix.signature.parser import Parameter
from opmatrix.signature.signature import torch_schema
from opmatrix.spec import FromKernel, Override, SameAs, TorchOp
from tests.support.torch_schemas import SCHEMAS


def replace_at(argument: Parameter) -> Parameter:
    """Return an argument without its place in the text."""
    return replace(argument, at=0, type=replace(argument.type, at=0))


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: s.partition("(")[0])
def test_the_declaration_gives_the_schema_back(schema: str) -> None:
    """As it is, or one with the same arguments: numbers as floats, and names of results left out."""
    draft = from_schema(schema, domain="my.domain")
    assert draft.spec.torch is not None
    declared = torch_schema(draft.spec)
    arguments = parser.parse(declared).arguments
    assert [replace_at(a) for a in arguments] == [replace_at(a) for a in parser.parse(schema).arguments]
    if draft.spec.torch.schema:
        assert declared == schema
    assert declared.count("Tensor", declared.index("->")) == schema.count("Tensor", schema.index("->"))


def test_names_follow_from_the_schema() -> None:
    spec = from_schema("MyNamespace::ScaleShift(Tensor x) -> Tensor", domain="my.domain").spec
    assert (spec.name, spec.onnx.op_type, spec.torch and spec.torch.name) == (
        "scale_shift", "ScaleShift", "MyNamespace::ScaleShift",
    )  # fmt: skip
    spec = from_schema("my::op(Tensor x) -> Tensor", domain="d", name="other", op_type="Third").spec
    assert (spec.name, spec.onnx.op_type, spec.torch and spec.torch.name) == ("other", "Third", "my::op")


def test_results_may_have_the_names_of_arguments_and_an_argument_that_of_the_type_variable() -> None:
    """torch infers such a schema from a function that is registered without one, as all of torch_sparse's are."""
    for schema, names in (
        ("torch_sparse::ptr2ind(Tensor _0, int _1) -> Tensor _0", ["y"]),
        ("torch_sparse::relabel(Tensor _0, Tensor _1) -> (Tensor _0, Tensor _1)", ["y0", "y1"]),
        ("my::f(Tensor x) -> (Tensor x, Tensor index)", ["y0", "index"]),
    ):
        assert [o.name for o in from_schema(schema, domain="my.domain").spec.outputs] == names
    spec = from_schema("my::f(Tensor T) -> Tensor", domain="my.domain").spec
    assert [*spec.types] == [spec.inputs[0].type] == ["T_2"]


def test_a_generator_gives_a_required_seed() -> None:
    draft = from_schema("my::f(Tensor x, float p=0.5, Generator? generator=None) -> Tensor", domain="d")
    seed = draft.spec.attributes[1]
    assert (seed.name, seed.kind, seed.default, seed.minimum, seed.torch_name) == ("seed", "int", None, 0, "generator")
    assert draft.notes == (
        "generator gives the attribute seed, one number per call; None is torch's default generator",
    )
    assert torch_schema(draft.spec) == "my::f_typed(Tensor x, float p=0.5, int generator=0) -> Tensor"
    other = from_schema("my::f(Tensor x, int seed, *, Generator generator) -> Tensor", domain="d").spec
    assert [a.name for a in other.attributes] == ["seed", "seed_2"]
    assert torch_schema(other) == "my::f_typed(Tensor x, int seed, *, int generator) -> Tensor"


# What says how many tensors a result has.
COUNTED = {
    "my::f(Tensor[] xs) -> Tensor[]": "xs",
    "my::f(Tensor x, Tensor[] xs, int n) -> (Tensor, Tensor[])": "xs",
    "my::f(Tensor x, int dim, int chunks) -> Tensor[]": "chunks",
    "my::f(Tensor x, int dim) -> Tensor[]": "dim",
    "my::f(Tensor x, int dim, int[] sizes) -> Tensor[]": "sizes",
}


@pytest.mark.parametrize("schema", COUNTED)
def test_a_list_of_tensors_is_a_variadic_output(schema: str) -> None:
    draft = from_schema(schema, domain="my.domain")
    name, output = COUNTED[schema], draft.spec.outputs[-1]
    assert output.variadic == name
    assert output.shape == SameAs(input="xs" if name == "xs" else "x")
    assert draft.notes == (f"{output.name} has as many tensors as {name} says; change variadic= if another one does",)
    assert [a.minimum for a in draft.spec.attributes if a.name == name and a.kind == "int"] in ([], [1])


WRITTEN = {
    "my::f(Tensor x, int axis=-1, float eps=1) -> Tensor out": False,
    "my::f(Tensor x, Tensor? bias=None) -> Tensor": True,
    "my::f(Tensor x, *, int axis) -> Tensor": True,
    "my::f.over(Tensor x) -> Tensor": True,
    "my::f(float a, Tensor x) -> Tensor": True,
    "my::f(Tensor[] xs, Tensor x) -> Tensor": True,
    "my::f(Tensor x, int[2] by=1) -> Tensor": True,
    "my::f(Tensor x, SymInt n) -> Tensor": True,
    "my::f(Tensor x, SymInt? n=None, SymInt[]? sizes=None) -> Tensor": True,
    "my::f(Tensor x, int signed) -> Tensor": True,
}


@pytest.mark.parametrize("schema", WRITTEN)
def test_the_schema_is_written_where_it_does_not_follow(schema: str) -> None:
    draft = from_schema(schema, domain="my.domain")
    assert draft.spec.torch is not None
    assert draft.spec.torch.schema == (schema if WRITTEN[schema] else "")
    assert draft.notes == ()


@pytest.mark.parametrize(
    ("arguments", "attributes", "is_kept"),
    [
        ("str[] names, str[]? more=None", [("names", "strings", False, None), ("more", "strings", True, None)], False),
        ("Scalar a, Scalar b=2", [("a", "float", False, None), ("b", "float", False, 2.0)], True),
        ("Scalar x0, Scalar? c=None", [("x0", "float", False, None), ("c", "float", True, None)], True),
        ("float? a=None, int[]? b=None", [("a", "float", True, None), ("b", "ints", True, None)], False),
        ("float? a=2, int[]? b=None", [("a", "float", True, None), ("b", "ints", True, None)], True),
    ],
)  # fmt: skip
def test_the_kinds_of_attributes(arguments: str, attributes: list[tuple[object, ...]], is_kept: bool) -> None:
    """A schema that does not follow from the declaration is kept."""
    schema = f"my::f(Tensor x, {arguments}) -> Tensor"
    spec = from_schema(schema, domain="d").spec
    assert [(a.name, a.kind, a.optional, a.default) for a in spec.attributes] == attributes
    assert spec.torch and spec.torch.schema == (schema if is_kept else "")


@pytest.mark.parametrize(
    ("arguments", "fixed", "note"),
    [
        ("*, ScalarType? dtype=None, bool? pin_memory=None", {}, "dtype, pin_memory: None is the only legal value"),
        (
            "ScalarType dtype, Layout? layout, *, Device device",
            {"dtype": "float32", "layout": None, "device": "cpu"},
            "fixed= of TorchOp has the only legal values, dtype=float32, layout=None, device=cpu: change them if yours "
            "are others",
        ),
    ],
)
def test_arguments_about_memory_have_one_value(arguments: str, fixed: dict[str, str | None], note: str) -> None:
    text = f"my::f(Tensor x, {arguments}) -> Tensor"
    draft = from_schema(text, domain="d")
    assert (draft.spec.torch, draft.spec.attributes) == (TorchOp(name="my::f", schema=text, fixed=fixed), ())
    assert draft.notes == (note,)


def test_written_arguments_are_inputs_with_an_output_and_out_arguments_are_outputs() -> None:
    text = "my::f.out(Tensor x, Tensor(b!) counts, *, Tensor(a!) out) -> (Tensor(a!), Tensor)"
    spec = from_schema(text, domain="d").spec
    assert [i.name for i in spec.inputs] == ["x", "counts"]
    assert [(o.name, o.writes, o.shape) for o in spec.outputs] == [
        ("out", None, SameAs(input="x")),
        ("new_counts", "counts", SameAs(input="counts")),
        ("y2", None, SameAs(input="x")),
    ]
    assert spec.torch == TorchOp(name="my::f", schema=text)
    in_place = from_schema("my::relu_(Tensor(a!) self) -> Tensor(a!)", domain="d").spec
    assert [(o.name, o.writes) for o in in_place.outputs] == [("new_self", "self")]


def test_a_written_argument_with_the_name_of_an_output_is_one() -> None:
    draft = from_schema("_C::norm(Tensor! result, Tensor! scale, Tensor x, float eps) -> ()", domain="d")
    assert [i.name for i in draft.spec.inputs] == ["scale", "x"]
    assert [(o.name, o.writes) for o in draft.spec.outputs] == [("result", None), ("new_scale", "scale")]
    (note,) = draft.notes
    assert note.startswith("result: written and not read, as the name says")
    alone = from_schema("my::fill_(Tensor(a!) out) -> ()", domain="d")
    assert [(o.name, o.writes) for o in alone.spec.outputs] == [("new_out", "out")]
    assert alone.notes == ()


# At 71b51ad8: the second to the fourth, the last two and `int[] sizes=[]` were accepted; the first, `int n=0`,
# `SymInt n=-2` and `float x` were refused without their columns.
REFUSED = [
    ("my::name(Tensor x) -> Tensor", 5, "found the name 'name', allowed: one without '__' in front, and none of _dir"),
    ("load_library::f(Tensor x) -> Tensor", 1, "torch.ops has attributes of its own with these names"),
    ("my::f.overloads(Tensor x) -> Tensor", 7, "found the overload 'overloads', allowed: one without '__' in front"),
    ("my::__f__(Tensor x) -> Tensor", 5, "found the name '__f__', allowed: one without '__' in front"),
    ("my::f(Tensor(a!)? x, Tensor y) -> Tensor", 7, "Tensor(a!)? is written and may be absent, allowed: Tensor(a!)"),
    ("my::f(Tensor!? x, Tensor y) -> Tensor", 7, "Tensor!? is written and may be absent, allowed: Tensor!. For calls "),
    ("my::f(Tensor(a!)[] xs, Tensor y) -> ()", 7, "Tensor(a!)[] is written, allowed: an argument for each tensor"),
    ("my::f(Tensor(a) x) -> Tensor(a)", 7, "is a view, and ONNX has none"),
    ("my::f(Tensor x) -> Tensor(a)", 20, "is a view, and ONNX has none"),
    ("my::f(Tensor x) -> Tensor(a!)", 20, "Tensor(a!) is not an argument, allowed: Tensor"),
    ("my::f(Tensor! x) -> Tensor!", 21, "Tensor! names no argument, allowed: Tensor(a!), the same at the argument"),
    ("my::f(*, Tensor(a!) out) -> ()", 6, "no argument is a Tensor"),
    ("my::f(Tensor x, Scalar[] a) -> Tensor", 17, "Scalar[] is a list of numbers of no fixed kind, and an attribute "
     "of ONNX has one: write float[] or int[]"),
    ("my::f(Tensor x, complex a) -> Tensor", 17, "complex is of a kind that neither LibTorch's stable ABI nor ONNX "),
    ("my::f(Tensor x, (int, int) a) -> Tensor", 17, "(int, int) is a tuple, and an attribute of ONNX is a number or a "
     "list: write int[], or an argument each"),
    ("my::f(Tensor x, Tuple(int, int) a) -> Tensor", 17, "Tuple(int, int) is a tuple"),
    ("my::f(Tensor x, number a) -> Tensor", 17, "write Scalar, float or int"),
    ("my::f(Tensor x, Scalar a=None) -> Tensor", 24, "'a' cannot be None: it is Scalar"),
    ("my::f(Tensor x, SymBool b) -> Tensor", 17, "SymBool is a size that torch may trace"),
    ("my::f(Tensor x, int n=None) -> Tensor", 21, "'n' cannot be None: it is int"),
    ("my::f(Tensor x, float[2] a) -> Tensor", 17, "has a fixed length, which a declaration cannot say: write float[]"),
    ("my::f(Tensor x, bool[] flags) -> Tensor", 17, "a list that torch's legacy exporter cannot trace: write int[]"),
    ('my::f(Tensor x, str[] names=["a"]) -> Tensor', 23, "'names' has a default, and torch takes none of str[]"),
    ("my::f(Tensor?[] xs, Tensor x) -> Tensor", 7, "Tensor?[] is any number of tensors, any of them absent"),
    ("my::f(Tensor x, Tensor[]? xs) -> Tensor", 17, "write Tensor[], of which none may be given"),
    ("my::f(Tensor x, ScalarType dtype=float) -> Tensor", 28, "'dtype' has a default, allowed: no default; fixed= of"),
    ("my::f(Tensor x, Layout? layout=strided) -> Tensor", 25, "'layout' has a default, allowed: no default, or None;"),
    ("my::f(Tensor x, ScalarType[] dtypes) -> Tensor", 17, "nothing that a node of ONNX can hold"),
    ("my::f(Tensor x, MemoryFormat format) -> Tensor", 17, "nothing that a node of ONNX can hold"),
    ("my::f(tensor x) -> Tensor", 7, "did you mean 'Tensor'?"),
    ("my::f(Tensor x, double a) -> Tensor", 17, "did you mean 'float'?"),
    ("my::f(Tensor x, string a) -> Tensor", 17, "did you mean 'str'?"),
    ("my::f(Tensor x, flaot a) -> Tensor", 17, "did you mean 'float'?"),
    ("my::f(int n) -> Tensor", 6, "no argument is a Tensor"),
    ("my::f(Tensor? x) -> Tensor", 6, "no argument is a Tensor"),
    ("my::f(Tensor x) -> ()", 20, "if the operator writes an argument, mark it: Tensor(a!)"),
    ("my::f(Tensor x) -> Tensor[]", 20, "any number of outputs, and no argument says how many: Tensor[], int, int[]"),
    ("my::f(Tensor x, int[] sizes=[]) -> Tensor[]", 36, "without default or with one of 1 output or more"),
    ("my::f(Tensor x, int n=0) -> Tensor[]", 29, "without default or with one of 1 output or more"),
    ("my::f(Tensor x, SymInt n=-2) -> Tensor[]", 33, "without default or with one of 1 output or more"),
    ("my::f(Tensor x, int? n=None) -> Tensor[]", 33, "no argument says how many"),
    ("my::f(Tensor x, int n) -> (Tensor[], Tensor)", 28, "Tensor[] is allowed as the last result"),
    ("my::f(Tensor(a!) x, int n) -> (Tensor(a!), Tensor[])", 44, "Tensor[] together with an argument that is written"),
    ("my::f(Tensor x) -> ...", 20, "any number of results"),
    ("my::f(Tensor x) -> int", 20, "int is not an output of an operator of ONNX, allowed: Tensor"),
    ("my::f(Tensor x) -> (Tensor, Tensor?)", 29, "a result that may be absent, allowed: Tensor, which is empty where"),
    ("my::f(Tensor x, Tensor[] xs, Tensor[] ys) -> Tensor", 30, "'ys' follows 'xs', of which there are any number"),
    ("my::f(Tensor x, ...) -> Tensor", 17, "any number of arguments of any kind"),
    ("my::f(Tensor x, float x) -> Tensor", 23, "'x' a second time; rename one"),
    ("f(Tensor x) -> Tensor", 1, "write 'my::f'"),
    ("aten::f(Tensor x) -> Tensor", 1, "give --override aten::f"),
    ("my::f(Tensor(a!) x, Tensor results) -> Tensor(a!)", 28, "'results' names something else in generated code, "
     "allowed: another name"),
    ("my::f(Tensor(a!) x, Tensor torch) -> Tensor(a!)", 28, "'torch' names something else in generated code, "
     "allowed: another name"),
]  # fmt: skip


# At 71b51ad8: each was refused without its column.
WRONG_DEFAULTS = [
    ("my::f(Tensor x, float a=1e39) -> Tensor", 23, "the default of 'a': found 1e+39, allowed: what float32 can hold"),
    ("my::f(Tensor x, float? a=-1e39) -> Tensor", 24, "found -1e+39, allowed: what float32 can hold"),
    ("my::f(Tensor x, float[] a=[1, 1e39]) -> Tensor", 25, "found 1e+39, allowed: what float32 can hold"),
    ("my::f(Tensor x, float[] a=[1, 'q']) -> Tensor", 25, "found (1, 'q'), allowed: a tuple of float"),
    ("my::f(Tensor x, float[] a=[None]) -> Tensor", 25, "found (None,), allowed: a tuple of float"),
    ("my::f(Tensor x, int a=0.5) -> Tensor", 21, "the default of 'a': found 0.5, allowed: int"),
    ("my::f(Tensor x, int? a=0.5) -> Tensor", 22, "the default of 'a': found 0.5, allowed: int"),
    ("my::f(Tensor x, int[] a=1) -> Tensor", 23, "the default of 'a': found 1, allowed: a tuple of int"),
    ("my::f(Tensor x, bool a=1) -> Tensor", 22, "the default of 'a': found 1, allowed: bool"),
    ("my::f(Tensor x, str a=1) -> Tensor", 21, "the default of 'a': found 1, allowed: string"),
]


@pytest.mark.parametrize(("schema", "column", "reason"), [*REFUSED, *WRONG_DEFAULTS], ids=lambda found: str(found)[:60])
def test_each_invalid_part_is_reported_with_its_column(schema: str, column: int, reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        from_schema(schema, domain="my.domain")
    what, shown, *places = str(raised.value).split("\n")
    assert (what, shown) == ("the schema cannot be declared:", f"  {schema}")
    assert any(p.index("^") - 2 == column - 1 and f"column {column}:" in p and reason in p for p in places), places


def test_all_reasons_are_reported_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        from_schema("my::f(Tensor(a) x, number s, int? n) -> Tensor[]", domain="my.domain")
    assert [line.split("column ")[1].partition(":")[0] for line in str(raised.value).split("\n")[2:]] == [
        "7", "20", "41",
    ]  # fmt: skip


# At 71b51ad8: the first and the sixth to the ninth were refused, the fifth kept its names.
@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("my::f(Tensor f, int k) -> Tensor", ["f_", "k", "y"]),  # the operator's own name
        ("my::f(Tensor from, int signed) -> Tensor", ["from_", "signed_", "y"]),
        ("my::f(Tensor stack, int results) -> Tensor", ["stack_", "results_", "y"]),
        ("my::f(Tensor check_dtype, float TensorView) -> Tensor", ["check_dtype_", "TensorView_", "y"]),
        ("my::f(Tensor known, str errno, bool NULL) -> Tensor", ["known_", "errno_", "NULL_", "y"]),
        ("my::f(Tensor x, float a, float a_float) -> Tensor", ["x", "a", "a_float_", "y"]),  # made of another's
        ("my::f(Tensor x, int a=1, int a_default=2) -> Tensor", ["x", "a", "a_default_", "y"]),
        ("my::f(Tensor x, int signed, int signed_) -> Tensor", ["x", "signed__2", "signed__", "y"]),
        ("my::f(Tensor x) -> (Tensor stack, Tensor z)", ["x", "y0", "z"]),
        (
            "my::f(Tensor bytes, int count, str text, str[] strings) -> Tensor",
            ["bytes", "count", "text", "strings", "y"],
        ),
    ],
)
def test_no_part_has_a_name_that_the_generated_code_uses(schema: str, names: list[str]) -> None:
    spec = from_schema(schema, domain="my.domain").spec
    assert [part.name for part in (*spec.inputs, *spec.attributes, *spec.outputs)] == names
    named = [a.name for a in parser.parse(schema).arguments]
    assert [p.torch_name or p.name for p in (*spec.inputs, *spec.attributes)] == named
    assert [a.onnx_name or a.name for a in spec.attributes] == named[len(spec.inputs) :]


# At 71b51ad8: the first seven were refused, the last four kept their names.
@pytest.mark.parametrize(
    "name",
    ["compile", "torch", "lambda", "std", "declaration", "double", "int", "run", "fail", "from_stack", "offsetof"],
)
def test_an_operator_whose_name_is_reserved_gets_another(name: str) -> None:
    spec = from_schema(f"my::{name}(Tensor x) -> Tensor", domain="my.domain").spec
    assert (spec.name, spec.torch) == (f"{name}_op", TorchOp(name=f"my::{name}"))
    with pytest.raises(UsageError, match=f"name: found '{name}', "):
        from_schema("my::f(Tensor x) -> Tensor", domain="my.domain", name=name)


# At 71b51ad8: the second was refused, the others kept the names.
@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("my::str(Tensor x, str a) -> Tensor", ["str_op", "x", "a", "y"]),
        ("my::range(Tensor len, int range) -> Tensor[]", ["range_op", "len_", "range_", "y"]),
        ("my::f(Tensor list, int NDArray, int ml_dtypes) -> Tensor[]", ["f", "list_", "NDArray_", "ml_dtypes", "y"]),
    ],
)
def test_no_part_has_a_name_that_its_reference_uses(schema: str, names: list[str]) -> None:
    spec = from_schema(schema, domain="my.domain").spec
    assert [
        spec.name,
        *(part.name for parts in (spec.inputs, spec.attributes, spec.outputs) for part in parts),
    ] == names


def facts(*schemas: str, shape: tuple[int, ...] = (3, 4), outputs: tuple[tuple[tuple[int, ...], str], ...] = ()) -> Any:
    runs = {"shape": list(shape), "outputs": [{"shape": list(s), "dtype": d} for s, d in outputs]} if outputs else None
    by_overload = {s.partition("(")[0].partition(".")[2]: s for s in schemas}
    return {"torch": "2.13.0", "schemas": by_overload, "runs": dict.fromkeys(by_overload, runs), "near": ["aten::sinh"]}


F32 = (((3, 4), "float32"),)


@pytest.mark.parametrize(
    ("name", "names"),
    [("aten::sinh", ("sinh", "Sinh")), ("aten::sqrt", ("aten_sqrt", "Sqrt"))],
    ids=["free", "reserved"],
)
def test_an_operator_of_torch_is_overridden(name: str, names: tuple[str, str]) -> None:
    draft = from_aten(facts(f"{name}(Tensor self) -> Tensor", outputs=F32), name, domain="my.aten")
    assert draft.aten == name and (draft.spec.name, draft.spec.onnx.op_type) == names
    assert draft.spec.torch == TorchOp(name=name, overrides=(Override(name=name),))
    assert [i.name for i in draft.spec.inputs] == ["x"]


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


@pytest.mark.parametrize(
    ("found", "name", "message"),
    [
        (facts(), "torchvision::nms", "--override takes torch's own operators, aten::name, and 'torchvision::nms' "
         "is of"),
        (facts(), "aten::sinnh", "torch 2.13.0 has no operator 'aten::sinnh'; did you mean 'aten::sinh'?"),
        (facts("aten::add.Tensor(Tensor self, Tensor other) -> Tensor"), "aten::add", "without a default overload"),
        (facts("aten::sum(Tensor self) -> Tensor", "aten::sum.dim(Tensor self, int[1] dim) -> Tensor"), "aten::sum.dim",
         "the overload 'dim' of aten::sum cannot be overridden: .* torch 2.13.0 has aten::sum.default, "),
        (facts("aten::relu_(Tensor(a!) self) -> Tensor(a!)"), "aten::relu_",
         "column 13: .*override that one, which returns"),
        (facts("aten::f(Tensor self, int? n) -> Tensor"), "aten::f", "int.* may be None"),
        (facts("aten::f(Tensor self, int dim, Tensor index) -> Tensor"), "aten::f", "it comes before a tensor"),
        (facts("aten::f(Tensor self) -> Tensor[]"), "aten::f", "any number of outputs"),
        (facts("aten::f(int n) -> Tensor"), "aten::f", "no argument is a Tensor"),
    ],
)  # fmt: skip
def test_an_operator_that_cannot_be_overridden_is_refused(found: Any, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_aten(found, name, domain="my.aten")
