"""`doit check` on models with functions of their own: each node in a function is checked as the call makes it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from onnx import helper, parser

from opmatrix.addons.check.functions import InlineError, inline
from opmatrix.addons.check.graph_walk import node_label
from tests.addons.check.judged import judged
from tests.addons.check.judged import model_text as model

pytestmark = pytest.mark.ort


LEAKY = "f <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }"
SCALED = "f <alpha: float = 3.0> (a) => (b) { c = Constant <value_float: float = @alpha> () b = Mul (a, c) }"
CLIPPED = "f (a, low, high) => (b) { b = Clip (a, low, high) }"
FOUR = "four (a) => (b) { c = loc.twice (a) b = loc.twice (c) }"
TWICE = "twice (a) => (b) { b = Add (a, a) }"
UNKNOWN = '<domain: "loc", opset_import: ["q":1]> bad (a) => (b) { b = q.NoSuch (a) }'
ONE, TWO, THREE = (f"right: with onnx.reference, node by node: {node}\n" for node in ("1 node", "2 nodes", "3 nodes"))
UNCALLED = "note: nodes: 1 function of the model without a call, whose nodes are not checked: loc::bad"
OTHER_OPSET = "imports version 11 of 'ai.onnx', the model 17"
CALL, OWN = "y = loc.f (x)", '<domain: "loc", opset_import: ["":17]>'
NEG = "(a) => (b) { b = Neg (a) }"
# The model, the beginning of its outcome and reason, and words of findings.
OUTCOMES: dict[str, tuple[str, ...]] = {
    "an attribute that is absent": (model(CALL, LEAKY), ONE),
    "an attribute that is given": (model("y = loc.f <alpha = 0.5> (x)", LEAKY), ONE),
    "a default": (model(CALL, SCALED), ONE),
    "another value than the default": (model("z = loc.f <alpha = 0.5> (x) y = loc.f (z)", SCALED), TWO),
    "an absent reference to an attribute with a default": (
        model("y = loc.outer (x)", "outer <k> (a) => (b) { b = loc.f <alpha: float = @k> (a) }", SCALED), ONE),
    "a list": (model("y = loc.f <p = [0]> (x)", "f <p> (a) => (b) { b = Transpose <perm: ints = @p> (a) }"), ONE),
    "a text": (
        model("y = loc.f <m = \"reflect\"> (x)",
              "f <m> (a) => (b) { p = Constant <value_ints = [0, 0]> () b = Pad <mode: string = @m> (a, p) }"), ONE),
    "inputs that are absent": (model(CALL, CLIPPED), ONE),
    "an input that is absent between others": (
        model('c = Constant <value_float = 0.5> () y = loc.f (x, "", c)', CLIPPED), ONE),
    "an output that is absent": (model('"", y = loc.f (x)', "f (a) => (b, c) { b = Neg (a) c = Exp (b) }"), TWO),
    "calls within calls": (model("y = loc.four (x)", FOUR, TWICE), TWO),
    "names as in the graph": (model("b = Neg (x) a = loc.twice (b) y = loc.twice (a)", TWICE), THREE),
    "a function within a branch": (
        model("c = Constant <value = bool {1}> () y = If (c) <then_branch = t () => (r) { r = loc.f (x) }, "
              "else_branch = e () => (s) { s = Neg (x) }>", LEAKY), ONE),
    "a branch within a function": (
        model("c = Constant <value = bool {1}> () y = loc.h <k = 0.5> (x, c)",
              "h <k> (a, c) => (b) { b = If (c) <then_branch = t () => (r) { r = LeakyRelu <alpha: float = @k> (a) }, "
              "else_branch = e () => (s) { s = Neg (a) }> }"), ONE),
    "a domain of ONNX Runtime that only the function imports": (
        model("z = loc.f (x) y = Neg (z)", '<domain: "loc", opset_import: ["":17, "com.microsoft":1]> '
              "f (a) => (b) { c = com.microsoft.Gelu (a) b = Identity (a) }"),
        "unknown: ", "ok: node by node: 2 node", "no wrong: "),  # Gelu has no reference
    "another opset with the same operator": (
        model(CALL, f'<domain: "loc", opset_import: ["":13]> f {NEG}'), ONE),
    "another opset with more dtypes": (
        model(CALL, '<domain: "loc", opset_import: ["":13]> f (a) => (b) { b = Add (a, a) }'), ONE),
    "overloads": (
        model("z = loc.f:one (x) y = loc.f:two (z)", f'<domain: "loc", overload: "one", opset_import: ["":17]> f {NEG}',
              '<domain: "loc", overload: "two", opset_import: ["":17]> f (a) => (b) { b = Exp (a) }'), TWO),
    "the name of an operator of ONNX": (
        model("y = Neg (x)", '<domain: "", opset_import: ["":17]> Neg (a) => (b) { b = Exp (a) }'), ONE),
    # A function without a call is a note. ONNX Runtime refuses two of them, called or not.
    "uncalled: an unknown domain": (model("y = loc.twice (x)", TWICE, UNKNOWN), ONE, UNCALLED),
    "uncalled: an unknown operator of ONNX": (
        model("y = loc.twice (x)", TWICE, "bad (a) => (b) { b = NoSuch (a) }"), ONE, UNCALLED),
    "uncalled: another opset": (
        model("y = loc.twice (x)", TWICE, '<domain: "loc", opset_import: ["":11]> bad (a) => (b) { b = Softmax (a) }'),
        ONE, UNCALLED),
    "uncalled: a domain that is not imported": (
        model("y = loc.twice (x)", TWICE, f"{OWN} bad (a) => (b) {{ b = loc.twice (a) }}"), "unsupported: ", UNCALLED,
        "wrong: "),
    "uncalled: random numbers": (
        model("y = loc.twice (x)", TWICE, "bad (a) => (b) { b = RandomNormalLike (a) }"), ONE, UNCALLED),
    "uncalled: itself": (
        model("y = loc.twice (x)", TWICE, "bad (a) => (b) { b = loc.bad (a) }"), "unsupported: ", UNCALLED, "wrong: "),
    # A fault in a function is named with its call.
    "an operator that nobody has": (
        model("y = loc.bad (x)", UNKNOWN), "",
        "wrong: nodes: q::NoSuch (gives 'b') in loc::bad (gives 'y'): neither this project nor ONNX Runtime has "),
    "an operator that ONNX does not have": (
        model(CALL, "f (a) => (b) { b = Relo (a) }"), "",
        "wrong: nodes: Relo (gives 'b') in loc::f (gives 'y'): ONNX has no such operator. Did you mean 'Relu'?"),
    "another opset with another operator": (
        model(CALL, '<domain: "loc", opset_import: ["":11]> f (a) => (b) { b = Softmax (a) }'), "",
        f"wrong: nodes: Softmax (gives 'b'): the function loc::f {OTHER_OPSET}, where it is another operator. Import "
        "one version in both: ONNX Runtime takes 17"),
    "another opset with an attribute that became an input": (
        model(CALL, '<domain: "loc", opset_import: ["":11]> f (a) => (b) { c = ReduceSum <axes = [0]> (a) '
              "b = Add (a, c) }"), "", f"wrong: nodes: ReduceSum (gives 'c'): the function loc::f {OTHER_OPSET}"),
    "an operator of a later opset": (
        model(CALL, '<domain: "loc", opset_import: ["":20]> f (a) => (b) { b = Gelu (a) }'), "",
        "wrong: nodes: Gelu (gives 'b'): the function loc::f imports version 20 of 'ai.onnx', the model 17"),
    "a domain that the function does not import": (
        model(CALL, f"{OWN} f (a) => (b) {{ b = loc.twice (a) }}", TWICE), "",
        "wrong: nodes: loc::twice (gives 'b'): the function loc::f does not import its domain 'loc'"),
    "a domain that the model does not import": (
        model("y = other.f (x)", f'<domain: "other", opset_import: ["":17]> f {NEG}'), "",
        "wrong: nodes: other::f (gives 'y'): the model does not import its domain 'other'"),
    "too many inputs": (
        model("y = loc.twice (x, x)", TWICE), "",
        "wrong: nodes: loc::twice (gives 'y'): it has 2 inputs, and the function 1 (a). Call it with as many inputs as "
        "it has"),
    "too many outputs": (
        model("y, z = loc.twice (x)", TWICE), "",
        "wrong: nodes: loc::twice (gives 'y'): it has 2 outputs, and the function 1 (b)"),
    "an absent attribute that its node needs": (
        model(CALL, "f <to> (a) => (b) { b = Cast <to: int = @to> (a) }"), "",
        "wrong: types and shapes: shape inference fails at Cast (gives 'b') in loc::f (gives 'y')"),
    "a function that calls itself": (
        model(CALL, "f (a) => (b) { b = loc.g (a) }", "g (a) => (b) { b = loc.f (a) }"), "",
        "wrong: nodes: a function calls itself, which ONNX forbids: loc::f -> loc::g -> loc::f. Export it again"),
    # A limit of ONNX Runtime.
    "an import of the function alone": (
        model(CALL, '<domain: "loc", opset_import: ["":17, "sub":1]> f (a) => (b) { b = sub.h (a) }',
              f'<domain: "sub", opset_import: ["":17]> h {NEG}'),
        "unsupported: ", "reason: wants the model to import 'sub', which its function loc::f imports. The model may be "
        "right. For ONNX Runtime, add it to the imports of the model, too: version 1. With its functions inlined, it "
        "agrees with onnx.reference, node by node: 1 node"),
}  # fmt: skip


@pytest.mark.parametrize("row", OUTCOMES.values(), ids=OUTCOMES)
def test_a_model_with_functions(row: tuple[str, ...], tmp_path: Path) -> None:
    made, *said = row
    judged(made, tmp_path).is_said(*said)


def test_the_nodes_of_calls_have_values_and_labels_of_their_own() -> None:
    """A node keeps its origin in its label, and outputs that are inputs or equal are copied."""
    made = parser.parse_model(model("y = loc.four (x)", FOUR, TWICE))
    labels = [node_label(node) for node in inline(made, []).model.graph.node]
    assert labels[0] == "Add (gives 'b') in loc::twice (gives 'c') in loc::four (gives 'y')" and len({*labels}) == 2
    made = parser.parse_model(model("p, q, y = loc.f (x)", "f (a) => (a, b, b) { b = Neg (a) }"))
    nodes = [(n.op_type, *n.input, *n.output) for n in inline(made, []).model.graph.node]
    assert nodes == [("Neg", "x", "q"), ("Identity", "x", "p"), ("Identity", "q", "y")]
    made = parser.parse_model(model("y = Neg (x)", "f (a) => (b) { c = Neg (a) b = Exp (c) }"))
    names = ["x", *(f"t{n}" for n in range(3000)), "y"]
    del made.graph.node[:]
    made.graph.node.extend(helper.make_node("f", [a], [b], domain="loc") for a, b in pairwise(names))
    many = inline(made, []).model.graph.node
    assert len(many) == 2 * 3001 == len({output for node in many for output in node.output})
    without = parser.parse_model(model("y = Neg (x)"))
    assert inline(without, []).model is without, "it is not copied"


@pytest.mark.parametrize(("count", "body"), [(40, "c = loc.f{0} (a) b = loc.f{0} (c)"), (400, "b = loc.f{0} (a)")])
def test_calls_that_explode_are_not_inlined(count: int, body: str) -> None:
    """Each function of the first calls the next twice: 2 ** 40 nodes. The second has 400 calls within each other."""
    functions = [f"f{n} (a) => (b) {{ {body.format(n + 1)} }}" for n in range(count)]
    made = parser.parse_model(model("y = loc.f0 (x)", *functions, f"f{count} {NEG}"))
    with pytest.raises(InlineError, match="100,000 nodes, or 100 functions within each other"):
        inline(made, [])
