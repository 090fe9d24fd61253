"""Mutants of lowerings, gradients, operators in Python, fake kernels and shape rules: exact lists for small files."""

from __future__ import annotations

import ast

import pytest

from opmatrix.addons.mutate.python_mutants import ALL, python_mutants

TORCH = "ops/f/torch_op.py"
LOWERING = "ops/f/lowering.py"
SPEC = "ops/f/spec.py"
DECLARATION = """
SPEC = OpSpec(
    name="f",
    inputs=(
        Input(name="x", type="T", dims=("N", "C")),
        Input(name="y", type="T", same_as="x"),
        Input(name="scale", type="T", dims=("C",)),
        Input(name="bias", type="T", dims=("C",), optional=True),
    ),
    outputs=(%s,),
    min_opset=12,
)
"""


def changes(path: str, source: str, kind: str, **defaults: str) -> list[str]:
    """Return ``before -> after`` of each mutant of a kind, in the order of the file. Each of them is Python."""
    found = [m for m in python_mutants(path, source, defaults) if m.kind == kind]
    for mutant in found:
        ast.parse(mutant.applied(source))
        assert mutant.applied(source) != source
    return [f"{mutant.before} -> {mutant.after}" for mutant in found]


def backward(body: str) -> str:
    return f'"""A gradient."""\nimport torch\n\n\ndef backward(ctx, grad):\n    """Return it."""\n    {body}\n'


def of_tensor(computed: str, tensor: str) -> str:
    return f"{tensor} -> [None if t is None else {computed} for t in [{tensor}]][0]"


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("comparison", "return x if ctx.mode is None and a < b <= c else y",
         ["is -> is not", "< -> <=", "< -> >", "<= -> <", "<= -> >="]),
        ("arithmetic", "x = a @ b - c; x //= 2; return x", ["@ -> *", "- -> +", "//= -> *="]),
        ("condition", "if a and b: return x", ["a and b -> (a)", "a and b -> (b)", "a and b -> False",
                                               "a and b -> True", "and -> or"]),
        ("constant", "return grad.sum(2) * 0.5, None, True",
         ["2 -> 1", "2 -> 3", "0.5 -> 0.0", "0.5 -> 1.0", "True -> False"]),
        ("constant", "return g.op(x, keepdims_i=1)", ["1 -> 0"]),
        ("sign", "y = a - b; return -y", ["a - b -> -(a - b)", "-y -> (y)"]),
        ("dropped", "ctx.save(x); y = x; y = y - 1; y += 1",
         ["ctx.save(x) -> pass", "y = y - 1 -> pass", "y += 1 -> pass"]),
        ("attribute", "eps = ctx.eps; return eps * other.eps, epsilon", ["ctx.eps -> 1e-05", "eps -> 1e-05"]),
        ("zeros", "return grad * x, None, grad.new_zeros(3), torch.zeros_like(x), grad",
         [of_tensor("torch.zeros_like(t)", "grad * x"), of_tensor("torch.zeros_like(t)", "grad")]),
        ("one_dtype", "return grad", [of_tensor("t * (1 + (t.dtype == torch.float32))", "grad")]),
        ("fake", "return grad", []),
        ("swapped", "return torch.where(a, b, 0), pick(x, [1]), a if c else b",
         ["a, b -> b, a", "a if c else b -> (b if c else a)"]),
        ("argument", "return torch.cat([a, b], dim=1, device=d)", [", dim=1 -> "]),
        ("function", "return x.sum(0).ceil()", ["sum -> mean", "ceil -> floor"]),
        ("dtype", "return x.to(torch.float64), x.to(torch.int64), other.float64, 'float32'",
         ["torch.float64 -> torch.float32", "'float32' -> \"float64\""]),
    ],
)  # fmt: skip
def test_the_mutants_of_a_gradient(kind: str, body: str, expected: list[str]) -> None:
    assert changes(TORCH, backward(body), kind, eps="1e-05") == expected


@pytest.mark.parametrize(
    ("kind", "node", "expected"),
    [
        ("function", 'g.op("ReduceMean", x, axes_i=[2])', ['"ReduceMean" -> "ReduceSum"']),
        ("argument", 'g.op("ReduceMean", x, axes_i=[2], keepdims_i=1)', [", axes_i=[2] -> ", ", keepdims_i=1 -> "]),
        ("swapped", 'g.op("Sub", x, y)', ["x, y -> y, x"]),
        ("swapped", 'g.op("Add", x, y)', []),
        ("dtype", 'g.constant([1], "int64")', ['"int64" -> "int32"']),
        ("dtype", "(FLOAT, DOUBLE)", ["FLOAT -> DOUBLE", "DOUBLE -> FLOAT"]),
        ("dtype", "DOUBLE", []),  # no other name is there
        ("attribute", "g.constant(axis)", ["axis -> 0"]),
        ("zeros", "x", []),  # a node is no tensor
        ("condition", "x if g.opset < 18 else y", ["g.opset < 18 -> False", "g.opset < 18 -> True"]),
    ],
)
def test_the_mutants_of_a_lowering(kind: str, node: str, expected: list[str]) -> None:
    source = f"def custom(g: Any, x: Any, axis: int) -> Any:\n    return {node}\n"
    assert changes(LOWERING, source, kind, axis="0") == expected


def test_a_fake_kernel_returns_another_shape_or_dtype_and_no_other_values() -> None:
    source, made = "def fake(x):\n    return x.new_empty(x.shape)\n", "x.new_empty(x.shape)"
    expected = [of_tensor("t.to(torch.float16)", made), of_tensor("t.unsqueeze(0)", made)]
    assert [changes(TORCH, source, kind) for kind in ("fake", "zeros", "one_dtype")] == [expected, [], []]
    # What registers, and what is no code.
    source = (
        '"""Two 2."""\nfrom a import b\n\n\ndef define() -> int:\n    return 1 + 1\n\n\n'
        'def backward(ctx: Any, grad: int = 3) -> None:\n    """Two 2."""\n    raise ValueError(f"{grad + 1}")\n'
    )
    assert python_mutants(TORCH, source) == []


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        # y has x's shape: no other one.
        ('Output(name="a", type="T", shape=SameAs(input="x"))', ['"x" -> "scale"']),
        ('Output(name="a", type="T", shape=SameAs(input="scale", replace={0: "2*C", 1: None, -1: 7}))',
         ['"scale" -> "x"', '"scale" -> "y"', '"2*C" -> "2*C + 1"', "7 -> 8"]),
        ('Output(name="a", type="T", shape=Dims(dims=("N", "...", 3)))',
         ['("N", "...", 3) -> ("N", "...")', '"N" -> "N + 1"', "3 -> 4"]),
        ('Output(name="a", type="int64", shape=FromKernel(rank=1))', ["1 -> 2"]),
        ('Output(name="a", type="int64", shape=FromKernel(dims=("E", 2)))',
         ['("E", 2) -> ("E",)', '"E" -> "E + 1"', "2 -> 3"]),
    ],
)  # fmt: skip
def test_the_mutants_of_a_shape_rule(output: str, expected: list[str]) -> None:
    assert changes(SPEC, DECLARATION % output, "shape") == expected


def test_the_part_context_and_place_of_a_mutant() -> None:
    """Of a declaration only the shape rules are mutated. Offsets are those of bytes."""
    found = python_mutants(SPEC, DECLARATION % 'Output(name="a", type="T", shape=SameAs(input="x"))')
    assert {(m.kind, m.part) for m in found} == {("shape", "shape")}
    assert found[0].context == 'Output(name="a", type="T", shape=SameAs(input=«"x"»))'
    assert {m.part for m in python_mutants(TORCH, backward("return grad + 1"))} == {"torch_op"}
    source = 'def custom(g, x):\n    größe = "ü"; return x + größe\n'
    mutants = python_mutants(LOWERING, source)
    assert {m.part for m in mutants} == {"lowering"}
    mutant = next(m for m in mutants if m.kind == "arithmetic")
    assert mutant.applied(source) == source.replace("x + ", "x - ")
    assert (mutant.function, mutant.line, mutant.context) == ("custom", 2, "return x «+» größe")


def test_each_kind_has_a_test_above() -> None:
    rows = [
        row[0]
        for test in (test_the_mutants_of_a_gradient, test_the_mutants_of_a_lowering)
        for row in test.pytestmark[0].args[1]  # type: ignore[attr-defined]  # set by the decorator
    ]
    assert {*rows, "fake", "shape"} == ALL.keys()
