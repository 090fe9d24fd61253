"""Each mistake in a declaration is reported with file, field, found value and allowed values."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opmatrix.basics.errors import SpecError, UsageError
from opmatrix.codegen.generated_files import cpp_files
from opmatrix.declaration.load import Operator, clashes, load_operator, load_operators
from opmatrix.declaration.validation.operator import RESERVED, declaration
from opmatrix.engine.tasks import GROUPS
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import ONLY_KERNEL
from opmatrix.spec import Input, TorchOp
from tests.support.projects import ROOT, write_files
from tests.support.specs import declare

SPEC = (ROOT / "ops/group_norm/spec.py").read_text().replace("import Attribute", "import Attribute, Dims, Headers")
CUSTOM = '"custom": {\n            "float32": Tolerance('
CASES = """
from opmatrix.spec import Case, Model, Random, Values

def case(name="plain", n=2, c=4, h=3, groups=2.0, scale=4):
    return Case(name=name, inputs={
        "x": Random(shape=(n, c, h)), "num_groups": Values(values=(groups,)),
        "scale": Random(shape=(scale,)), "bias": Random(shape=(c,)),
    })

MODELS = (Model(name="plain", types={"T": "float32"}, cases=(case(),)),)
"""


def project(folder: Path, *, spec: str = SPEC, cases: str = CASES, name: str = "group_norm") -> Paths:
    files = {f"ops/{name}/spec.py": spec, f"ops/{name}/cases.py": cases, f"native/{name}/kernel.h": ""}
    write_files(folder, files)
    return Paths(folder)


def mistakes(paths: Paths) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_operators(paths)
    return str(caught.value).splitlines()


def test_a_declaration_is_read_and_its_files_are_named_as_they_must_be(tmp_path: Path) -> None:
    paths = project(tmp_path / "right")
    (operator,) = load_operators(paths)
    assert (operator.name, [m.name for m in operator.models]) == ("group_norm", ["plain"])
    with pytest.raises(UsageError, match="no operator 'groupnorm' in ops/, there is: group_norm; did you mean"):
        load_operator(paths, "groupnorm")
    paths.cases("group_norm").unlink()
    assert mistakes(paths) == ["ops/group_norm/cases.py: missing; it defines MODELS"]
    assert mistakes(project(tmp_path / "wrong", name="groupnorm")) == [
        "ops/groupnorm/spec.py: name: found 'group_norm', allowed: the folder's name 'groupnorm'"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('name="group_norm",', "", ["name: missing in OpSpec; it has no default"]),
        ('name="group_norm"', 'colour=1, name="group_norm"', ["colour: unknown argument of OpSpec, allowed: name, "]),
        ('kind="float"', 'kind="flaot"', ["attributes[0].kind: found 'flaot', allowed: 'float', ", "did you mean 'float'?"]),
        ('("float32", "float64", ', '("float32", "flot64", ', ["types: found {'T': ('float32', 'flot64', 'float16', 'bfloat16')}", "did you mean 'float64'?"]),
        ('name="x", type="T"', 'name="x", type="floot32"', ["inputs[0].type: found 'floot32', allowed: T, ", "did you mean 'float32'?"]),
        ("minimum=0.0", 'minimum="0"', ["attributes[0].minimum: found '0', allowed: float or nothing (None)"]),
        ("default=1e-5", "default=1e60", ["attributes[0].default: found 1e+60, allowed: what float32 can hold"]),
        ('input="x"', 'input="z"', ["outputs[0].shape.input: found 'z', allowed: x, num_groups, scale, bias"]),
        ('domain="mydomain"', 'domain="ai.onnx"', ["onnx.domain: found 'ai.onnx', which is ONNX's own"]),
        ('domain="mydomain"', 'domain="ai.onnx.ml"', ["onnx.domain: found 'ai.onnx.ml', which is ONNX's own"]),
        ("versions=(1, 2)", "versions=(0,)", ["onnx.versions: found (0,), allowed: from since_version=1 on"]),
        ("name=\"mynamespace::custom", "name=\"custom", ["torch.name: found 'custom_group_norm', allowed: 'namespace::name'"]),
        ("name=\"mynamespace::custom_group_norm", "name=\"load_library::__x", ["torch.name: found the namespace 'load_library', allowed: one without '__' in front, and none of _dir"]),
        ('name="bias", type', 'name="scale", type', ["inputs, attributes, outputs: 'scale' is declared twice"]),
        ('torch_name="eps"', 'torch_name="bias"', ["torch_name: two arguments of the torch schema are named 'bias'"]),
        ('torch_name="eps"', 'torch_name="eps", optional=True', ["attributes[0].default: found 1e-05 at an attribute that is optional, allowed: None, its default; or optional=False"]),
        ('kind="float", default=1e-5', 'kind="float", optional=True), Attribute(name="b", kind="int"', ["attributes: one without a default follows one with a default"]),
        ('torch_name="eps"', 'onnx_name="1st"', ["attributes[0].onnx_name: found '1st', allowed: an identifier of ONNX: letters of ASCII"]),
        ('torch_name="eps"', 'onnx_name="größe"', ["attributes[0].onnx_name: found 'größe', allowed: an identifier of ONNX"]),
        ('torch_name="eps"', 'onnx_name=""', ["attributes[0].onnx_name: found '', allowed: an identifier of ONNX"]),
        ('torch_name="eps"', 'onnx_name="schema_version"', ["attributes[0].onnx_name: found 'schema_version', which nodes of a later schema have already"]),
        ('torch_name="eps"', 'onnx_name="signed", torch_only=True', ["attributes[0].onnx_name: found 'signed' at an attribute with torch_only, which no node has"]),
        ('Attribute(\n', 'Attribute(name="a", kind="int", onnx_name="epsilon"), Attribute(\n', ["onnx_name: two attributes of the node are named 'epsilon'"]),
        ('"float64": Tolerance', '"int8": Tolerance', ["tolerances['custom']: 'float64' is missing"]),
        (f"{CUSTOM}rtol=2.5e-7", f"{CUSTOM}rtol=-1", ["tolerances['custom']['float32'].rtol: found -1, allowed: a number from 0 on"]),
        ('dims=("N", "C", "...")', 'dims=("...", "C", "...")', ["inputs[0].dims: found ('...', 'C', '...'), allowed: '...' once"]),
        ("tolerances={", "min_opset=99, tolerances={", ["min_opset: found 99, allowed: 7 to 25; no exporter writes any other"]),
        ("tolerances={", "runtime='contrib', tolerances={", ["runtime: found 'contrib', so that torch has no kernel for it"]),
        ('name="scale", type', 'name="scale", variadic=True, type', ["inputs[2].variadic: 'scale' is not the last input"]),
        ('name="bias", type', 'name="class", type', ["'class': is not an identifier of both C++ and Python"]),
        ('name="bias", type', 'name="schema", type', ["'schema': means something else in generated code"]),
        ('dims=("C",), doc="one factor', 'dims=("NN",), optional=True, doc="one factor', ["inputs[2].dims: found 'NN', ", "did you mean 'N'?"]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=("N // C",))', ["outputs[0].shape.dims: found 'N // C': it divides by 'C', allowed: by a number from 1 on"]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=("N // 0",))', ["outputs[0].shape.dims: found 'N // 0': it divides by '0', allowed"]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=("N); abort(",))', ["outputs[0].shape.dims: found 'abort', allowed: sizes that required inputs have: N, C"]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=("N); {",))', ["outputs[0].shape.dims: found 'N); {': no expression: "]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=("N ** 2",))', ["outputs[0].shape.dims: found 'N ** 2': 'N ** 2' is none of"]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=("Nn",))', ["outputs[0].shape.dims: found 'Nn', allowed: ", "did you mean 'N'?"]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=("N", "epsilon"))', ["outputs[0].shape.dims: found 'epsilon', an attribute, allowed: one of kind int that ONNX has, not optional, with minimum= or"]),
        ('shape=SameAs(input="x")', 'shape=Dims(dims=(-1,))', ["outputs[0].shape.dims: found -1: allowed: a number from 0 to"]),
        ('dims=("N", "C", "..."), doc', 'dims=("N", "C", "..."), optional=True, doc', ["outputs[0].shape.input: found 'x', allowed: num_groups, scale, bias"]),
        ('kind="float", default=1e-5, torch_name="eps", minimum=0.0', 'kind="string", default="a\\nb", torch_name="eps"', ["attributes[0]: found the text 'a\\nb', allowed: printable characters"]),
        ('kind="float", default=1e-5, torch_name="eps", minimum=0.0', 'kind="ints", allowed=((0,),), torch_name="eps"', ["attributes[0].allowed: found on a list (ints), allowed: on a single value"]),
        ('name="bias", type="T"', 'name="bias", type="uint4"', ["inputs[3].type: found 'uint4', allowed with torch=None: torch 2.6 to 2.15 has uint4 in name alone, and copies", "Declare type='uint8' with onnx_type='uint4'"]),
        ('("float32", "float64", ', '("float32", "complex128", ', ["types: found 'complex128', which no ONNX Runtime", "Declare float64 with a last axis of 2"]),
        ('("float32", "float64", ', '("float32", "float8e4m3fn", ', ["types: found {'T': ('float32', 'float8e4m3fn', 'float16', 'bfloat16')}, allowed: ", "did you mean 'float8_e4m3fn'?"]),
        ('("float32", "float64", ', '("float32", "string", ', ["types['T']: found 'string', allowed with torch=None"]),
        ('"float64": Tolerance(rtol=1e-13', '"string": Tolerance(rtol=1e-13', ["tolerances['custom']['string'].rtol: found 1e-13, allowed: 0.0; strings are equal or not"]),
        ('kind="float", default=1e-5, torch_name="eps", minimum=0.0', 'kind="strings", default=("a",)', ["attributes[0].default: found ('a',), allowed: none, because torch takes none of str[]; or optional=True"]),
        ('kind="float", default=1e-5, torch_name="eps", minimum=0.0', 'kind="strings", default=("a\\0b",)', ["attributes[0]: found the text 'a\\x00b', allowed: printable characters"]),
        ('kind="float", default=1e-5', 'kind="tensor", type="float32", dims=(3,)', ["attributes[0]: a tensor, and the operator has a torch schema, which has no such attribute. Make it an input, or"]),
        ('kind="float", default=1e-5', 'kind="tensor", type="string", dims=(3,)', ["attributes[0].type: found 'string', allowed: float32, float64, int8"]),
        ('kind="float", default=1e-5', 'kind="tensor", type="float32"', ["attributes[0].dims: found None, allowed: a size from 0 on, or None for any, for each axis"]),
        ('kind="float", default=1e-5', 'kind="tensor", type="float32", dims=(-1,)', ["attributes[0].dims: found (-1,), allowed: a size from 0 on"]),
        ('kind="float", default=1e-5', 'kind="tensor", type="float32", dims=(), optional=True', ["attributes[0].optional: found on a tensor, allowed: on other kinds"]),
        ('kind="float", default=1e-5', 'kind="float", default=1e-5, dims=(3,)', ["attributes[0].dims: found on a float, allowed: on a tensor"]),
        ('name="bias", type="T"', 'name="epsilon_", type="T"', ["'epsilon_': is what generated code calls something of 'epsilon'"]),
        ('name="bias", type="T"', 'name="len", type="T"', ["'len': means something else in generated code"]),
        ('name="bias", type="T"', 'name="T", type="T"', ["'T': means something else in generated code"]),
        ('op_type="mygroupnorm"', 'op_type="Constant"', ["onnx.op_type: found 'Constant', of which ONNX Runtime makes no custom op in any domain"]),
        ('op_type="mygroupnorm"', 'op_type="Shape"', ["onnx.op_type: found 'Shape', whose nodes ONNX Runtime replaces by the shape of their input"]),
        ('op_type="mygroupnorm"', 'op_type="mygroupnorm", since_version=2', ["onnx.since_version: found 2, not supported yet, allowed: 1"]),
        ('dims=("C",), doc="one factor', 'same_as="xx", doc="one factor', ["inputs[2].same_as: found 'xx', allowed: x, num_groups; did you mean 'x'?"]),
        ('dims=("C",), doc="one factor', 'same_as="bias", doc="one factor', ["inputs[2].same_as: found 'bias', allowed: x, num_groups"]),
        ('dims=("C",), doc="one factor', 'dims=("C",), same_as="x", doc="one factor', ["inputs[2]: found dims=('C',) and same_as='x', allowed: one of both"]),
        ('dims=("C",), doc="one summand', 'same_as="scale", optional=True, variadic=True, doc="one summand', ["inputs[3]: 'bias' is optional and variadic; choose one"]),
        ("default=1e-5", "default=float('nan')", ["attributes[0].default: found nan, allowed: finite numbers; C++ has no literal for"]),
        ("default=1e-5", "default=float('inf')", ["attributes[0].default: found inf, allowed: finite numbers"]),
        ("minimum=0.0", "minimum=float('nan')", ["attributes[0].minimum: found nan, allowed: finite numbers"]),
        ("minimum=0.0", "maximum=float('inf')", ["attributes[0].maximum: found inf, allowed: finite numbers"]),
        ("default=1e-5", "default=10**5000", ["attributes[0].default: found an int of 16610 bits, allowed: one that int64"]),
        ('name="group_norm"', f'name="{"n" * 300}"', ["name: found 'nnn", "allowed: at most 100 lower-case letters, digits and _"]),
        ("tolerances={", "headers=(Headers(folder='../x'),), tolerances={", ["headers[0].folder: found '../x', allowed: a folder rel"]),
        ("tolerances={", "headers=(Headers(folder='x' * 300),), tolerances={", ["headers[0].folder: found 'xxx", "without '..'"]),
        ("cpu_levels=True,", 'cpu_levels=True, runtime="contrib",', ["cpu_levels: found True, allowed: False, because ONNX Runtime has the kernel: no kernel of its own is compiled"]),
        ('types={"T": ("float32", "float64", ', 'reference="torch", types={"T": ("float32", "string", ', ["reference: found 'torch', allowed: 'numpy', because torch has no tensors of strings"]),
        ("tolerances={", "reference='jax', tolerances={", ["reference: found 'jax', allowed: 'numpy', 'torch'"]),
        ("SPEC = ", "SPECK = ", ["found NoneType as SPEC, allowed: OpSpec"]),
        ("SPEC = ", "1/0\nSPEC = ", ["spec.py:5: ZeroDivisionError: division by zero"]),
        ("SPEC = ", "SPEC == = ", ["spec.py:5: SyntaxError: invalid syntax"]),
        ('OnnxOp(domain="mydomain"', 'OnnxOp("mydomain"', ["onnx: found 'mydomain' without a name; write FIELD=VALUE"]),
    ],
)  # fmt: skip
def test_a_mistake_in_a_declaration(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in SPEC
    found = mistakes(project(tmp_path, spec=SPEC.replace(old, new, 1)))
    assert any(line.startswith("ops/group_norm/spec.py") and all(e in line for e in expected) for line in found), found


@pytest.mark.parametrize(("op_type", "inputs", "least"), [("Add", 1, 2), ("Where", 1, 3)])
def test_an_op_type_of_onnx_with_fewer_inputs_is_refused(op_type: str, inputs: int, least: int) -> None:
    """ONNX Runtime would end the process. An input that a node may leave out at its end does not count."""
    parts = [Input(name=f"x{n}", type="float32") for n in range(least)]
    spec = declare("f() -> y: float32 like x0", *parts[:inputs], onnx=f"test::{op_type}", tolerances={})
    later = tuple(replace(part, optional=n >= inputs) for n, part in enumerate(parts))
    for refused in (spec, replace(spec, inputs=later)):
        (mistake,) = [m for m in declaration(refused, "f") if m.field == "onnx.op_type"]
        assert (
            f"found {op_type!r} with {inputs} input" in mistake.text
            and f"which has {least}, and ends the process; choose another one" in mistake.text
        )
    assert not [m for m in declaration(replace(spec, inputs=(*parts,)), "f") if m.field == "onnx.op_type"]


EPSILON = 'kind="float", default=1e-5, torch_name="eps", minimum=0.0'


@pytest.mark.parametrize(
    ("attribute", "is_a_size"),
    [
        ('kind="int", default=2, minimum=0', True),
        ('kind="int", default=2', False),
        ('kind="int", default=2, minimum=-1', False),
        ('kind="int", default=2, minimum=0, torch_only=True', False),
        (EPSILON, False),
    ],
)
def test_an_attribute_that_cannot_be_negative_can_be_a_size(tmp_path: Path, attribute: str, is_a_size: bool) -> None:
    assert EPSILON in SPEC
    spec = SPEC.replace(EPSILON, attribute).replace('shape=SameAs(input="x")', 'shape=Dims(dims=("N", "epsilon"))')
    paths = project(tmp_path, spec=spec)
    if is_a_size:
        assert len(load_operators(paths)) == 1
    else:
        assert any("outputs[0].shape.dims: found 'epsilon', an attribute" in line for line in mistakes(paths))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('"T": "float32"', '"T": "int32"', ["MODELS[0].types['T']: found 'int32', allowed: float32, float64, float16, bfloat16"]),
        ('"T": "float32"}', '"T": "float32"}, min_opset={"decomposd": 13}', ["MODELS[0].min_opset: found {'decomposd': 13}, allowed: a dict", "did you mean 'decomposed'?"]),
        ('"T": "float32"}', '"T": "float32"}, min_opset={"decomposed": 9}', ["MODELS[0].min_opset['decomposed']: found 9, allowed: 10 to 25: above the operator's min_opset"]),
        ('"T": "float32"}', '"T": "float32"}, min_opset={"custom": 26}', ["MODELS[0].min_opset['custom']: found 26, allowed: 10 to 25"]),
        ('"T": "float32"', '"U": "float32"', ["MODELS[0].types: found 'U', allowed: T"]),
        ('Model(name="plain"', f'Model(name="{"n" * 101}"', ["MODELS[0].name: found 'nnn", "allowed: at most 100 letters"]),
        ("case(),)", f"case('{'n' * 101}'),)", ["its name takes at most 100 letters, digits and _"]),
        ("cases=(case(),)", "cases=()", ["MODELS[0].cases: found none, allowed: at least one"]),
        ("cases=(case(),)", "cases=(case(), case())", ["MODELS: two cases are named 'plain'"]),
        ("case(),)", "case(), case('b', n=5),)", ["cases[1] ('b').inputs['x']: found shape (5, 4, 3), allowed: (2, 4, 3)"]),
        ("case(),)", "case(scale=3),)", ["inputs['scale']: found shape (3,), allowed: C=4, as in 'x'"]),
        ('"x": Random', '"y": Random', [".inputs: found 'y', allowed: x, num_groups, scale, bias"]),
        ('"x": Random', '"y": Random', [".inputs['x']: missing"]),
        ("cases=", "attributes={'epsilon': None}, cases=", ["attributes['epsilon']: missing; it has no default"]),
        ("cases=", "attributes={'epsilon': -1.0}, cases=", ["attributes['epsilon']: found -1.0, allowed: 0.0 to inf"]),
        ("cases=", "attributes={'eps': 1.0}, cases=", ["attributes: found 'eps', allowed: epsilon; did you mean 'epsilon'?"]),
        ("cases=", "attributes={'alpha': 2.0}, cases=", ["attributes: found 'alpha', allowed: epsilon. Declare it in ops/group_norm/spec.py: add Attribute(name=\"alpha\", kind=\"float\", default=2.0, doc=\"...\") to attributes, or remove it here"]),
        ("cases=", "domain_version=7, cases=", ["MODELS[0].domain_version: found 7, allowed: 1, 2"]),
        ("cases=(case(),)", "dynamic={'x': ('N', None, None)}, cases=(case(n=1),)", ["bakes in a dynamic size of 0 or 1"]),
        ("cases=", "dynamic={'x': ('N',)}, cases=", ["has 3 axes, but dynamic names 1: ('N',)"]),
        ("cases=", "names={'z': 'Z'}, cases=", ["MODELS[0].names: found 'z', allowed: x, num_groups, scale, bias, y"]),
        ('"x": Random', '"x": None and Random', [".inputs['x']: missing"]),
        ('"x": Random(shape=(n, c, h))', '"x": (Random(shape=(n, c, h)),)', ["found a tuple of tensors, allowed: one tensor"]),
        ("shape=(n, c, h)", "shape=(n,)", ["found shape (2,), allowed: ('N', 'C', '...')"]),
        ("shape=(n, c, h)", "shpae=(n, c, h)", ["shpae: unknown argument of Random; did you mean 'shape'?"]),
        ("MODELS = ", "MODELS = 3 #", ["found int as MODELS, allowed: tuple"]),
    ],
)  # fmt: skip
def test_a_mistake_in_the_cases(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in CASES
    found = mistakes(project(tmp_path, cases=CASES.replace(old, new, 1)))
    assert any(line.startswith("ops/group_norm/cases.py") and all(e in line for e in expected) for line in found), found


def test_one_mistake_in_several_models_is_one_line(tmp_path: Path) -> None:
    cases = CASES.replace("MODELS = (", "ONE = (") + (
        "MODELS = tuple(Model(name=f'm{n}', types={'T': 'float32'}, attributes={'alpha': 1.0}, cases=(case(f'c{n}'),))\n"
        "               for n in range(6))\n"
    )
    (found,) = mistakes(project(tmp_path, cases=cases))
    assert found.startswith("ops/group_norm/cases.py: MODELS[0].attributes: found 'alpha', allowed: epsilon. Declare")
    assert found.endswith(". Also MODELS[1].attributes, MODELS[2].attributes, MODELS[3].attributes and 2 more")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("(), 'scale': S", "(), 'scale': S", ""),
        ("(S, S), 'scale': None", "(S, S)", ""),
        ("(S,)", "(S, S)", "cases[1] ('b').inputs['bias']: found 2 tensors, allowed: 1 as in the first case"),
        ("(S,), 'scale': S", "(S,)", "cases[1] ('b').inputs['scale']: found 0 tensors, allowed: 1 as in the first case"),
        ("S", "(S,)", "cases[0] ('a').inputs['bias']: found one tensor, allowed: a tuple of tensors; it is variadic"),
        ("(S, T)", "(S, T)", "cases[0] ('a').inputs['bias'][1]: found shape (3,), allowed: C=4, as in 'x'"),
    ],
)  # fmt: skip
def test_optional_and_variadic_inputs(tmp_path: Path, first: str, second: str, expected: str) -> None:
    spec = SPEC.replace('name="scale",', 'name="scale", optional=True,').replace(
        'name="bias",', 'name="bias", variadic=True,'
    )
    cases = f"""
from opmatrix.spec import Case, Model, Random
S, T = Random(shape=(4,)), Random(shape=(3,))
BOTH = {{"x": Random(shape=(2, 4, 3)), "num_groups": Random(shape=(1,))}}
A, B = Case(name="a", inputs=BOTH | {{"bias": {first}}}), Case(name="b", inputs=BOTH | {{"bias": {second}}})
MODELS = (Model(name="plain", types={{"T": "float32"}}, cases=(A, B)),)
"""
    paths = project(tmp_path, spec=spec, cases=cases)
    if expected:
        assert any(expected in line for line in mistakes(paths)), mistakes(paths)
    else:
        load_operators(paths)


def test_all_mistakes_of_all_files_are_reported_together(tmp_path: Path) -> None:
    spec = SPEC.replace("minimum=0.0", "minimun=0.0").replace(f"{CUSTOM}rtol=2.5e-7", f"{CUSTOM}rtol=-1")
    project(tmp_path, spec=spec)
    paths = project(tmp_path, name="other", spec=SPEC.replace("group_norm", "other"), cases=CASES + "MODELS = ()")
    assert [line.split(": ")[:2] for line in mistakes(paths)] == [
        ["ops/group_norm/spec.py", "attributes[0].minimun"],
        ["ops/group_norm/spec.py", "tolerances['custom']['float32'].rtol"],
        ["ops/other/cases.py", "MODELS"],
    ]


def test_two_operators_may_not_share_a_name(tmp_path: Path) -> None:
    project(tmp_path)
    paths = project(tmp_path, name="second", spec=SPEC.replace('name="group_norm"', 'name="second"'))
    names = ("onnx: 'mydomain::mygroupnorm'", "torch: 'mynamespace::custom_group_norm'")
    text = "ops/second/spec.py: {} is taken by ops/group_norm/spec.py; rename one"
    assert mistakes(paths) == [text.format(name) for name in names]


def test_two_operators_may_not_share_a_generated_name() -> None:
    """`<op>_typed` and `<op>_functional` are names of operators, too."""
    operator = load_operator(Paths(ROOT / "tests/projects/scalars"), "damped")

    def named(name: str, torch: str, arguments: str) -> Operator:
        schema = f"{torch}({arguments}) -> Tensor"
        op = replace(
            operator.spec,
            name=name,
            torch=TorchOp(name=torch.partition(".")[0], schema=schema),
            onnx=replace(operator.spec.onnx, op_type=name),
        )
        return replace(operator, spec=op)

    scalar, numbers = "Tensor x, Scalar factor, Scalar? offset", "Tensor x, float factor, float? offset"
    one = named("one", "sca::damped", scalar)
    plain = named("two", "sca::damped_typed", numbers)
    text = "'sca::damped_typed', {}the operator in its library that 'sca::damped' calls"
    assert [*clashes([plain, one])] == [
        (("two", "one"), f"ops/one/spec.py: torch: {text.format('')}, is taken by ops/two/spec.py; rename one"),
    ]  # fmt: skip
    (both,) = clashes([named("one", "sca::damped.x", scalar), named("two", "sca::damped_x", scalar)])
    assert both[1].startswith("ops/two/spec.py: torch: 'sca::damped_x_typed', the operator in its library that ")
    assert [*clashes([one, named("two", "sca::damped_typed.rows", numbers)])] == []
    assert len([*clashes([one, named("two", "sca::damped", scalar)])]) == 1


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("kernel", "a file that is generated, or that generated files include"),
        ("checks", "a file that is generated, or that generated files include"),
        ("include", "a folder of native/ with another meaning"),
        ("verify", "a group of steps, whose logs lie in a folder of that name"),
        ("std", "a name that C++ or the bindings use"),
        ("double", "a keyword of C++ or Python"),
        ("lambda", "a keyword of C++ or Python"),
    ],
)
def test_a_reserved_name_is_refused(tmp_path: Path, name: str, meaning: str) -> None:
    (found,) = mistakes(project(tmp_path, name=name, spec=SPEC.replace('name="group_norm"', f'name="{name}"')))
    assert found.startswith(f"ops/{name}/spec.py: name: found {name!r}, ") and meaning in found
    assert found.endswith("choose another name")


def test_every_file_and_group_name_is_reserved(root: Path) -> None:
    reserved = {name for names in RESERVED.values() for name in names}
    torch = SimpleNamespace(overrides=(), python=False)
    spec = SimpleNamespace(name="", kernel="", runtime="kernel", uses=(), torch=torch)
    generated = {Path(file).stem for file in cpp_files(cast(Any, spec), ONLY_KERNEL)} - {".h"}
    headers = {path.stem for path in (root / "native/binding").rglob("*.h")}
    folders = {path.name for path in (root / "native").iterdir()} - {path.name for path in (root / "ops").iterdir()}
    assert generated | headers | folders | set(GROUPS) <= reserved


@pytest.mark.parametrize(
    ("torch", "why"),
    [
        ("None", "torch does not have this operator"),
        ('TorchOp(name="aten::x", overrides=(Override(name="aten::x"),))', "torch has its own operator, with its own"),
    ],
)
def test_a_torch_op_file_without_a_use_is_refused(tmp_path: Path, torch: str, why: str) -> None:
    spec = SPEC.replace('TorchOp(name="mynamespace::custom_group_norm")', torch).replace(
        "import A", "import Override, A"
    )
    paths = project(tmp_path, spec=spec)
    load_operators(paths)
    paths.torch_op("group_norm").write_text("def backward(): ...")
    (found,) = mistakes(paths)
    assert found.startswith("ops/group_norm/torch_op.py: found a file that nothing would run: ") and why in found


def test_an_input_with_same_as_has_the_shape_of_the_other(tmp_path: Path) -> None:
    spec = SPEC.replace('dims=("C",), doc="one summand', 'same_as="scale", doc="one summand')
    load_operators(project(tmp_path / "right", spec=spec))
    assert mistakes(project(tmp_path / "wrong", spec=spec, cases=CASES.replace("shape=(c,)", "shape=(c, 1)"))) == [
        "ops/group_norm/cases.py: MODELS[0].cases[0] ('plain').inputs['bias']: found shape (4, 1), allowed: (4,), as "
        "'scale' has"
    ]


def test_reading_declarations_imports_no_framework(root: Path) -> None:
    code = f"""
import sys; from pathlib import Path; from opmatrix.project.paths import Paths
from opmatrix.declaration.load import load_operators
load_operators(Paths(Path({str(root)!r})))
print({{"torch", "onnx", "onnxscript", "onnxruntime", "numpy", "jinja2", "rich"}} & {{*sys.modules}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "set()"


LOOSE = """
class Loose(float):
    def __mul__(self, other): return float("inf")
    __rmul__ = __mul__
from dataclasses import replace
SPEC = replace(SPEC, tolerances={l: {d: Tolerance(rtol=Loose(t.rtol), atol=Loose(t.atol)) for d, t in m.items()}
                                 for l, m in SPEC.tolerances.items()})
"""


def test_a_tolerance_of_a_derived_class_is_its_number(tmp_path: Path) -> None:
    """Where it is compared, it could be infinite."""
    found = load_operator(project(tmp_path, spec=SPEC + LOOSE), "group_norm").spec.tolerances
    limits = [limit for by_dtype in found.values() for t in by_dtype.values() for limit in (t.rtol, t.atol)]
    assert {*map(type, limits)} == {float}
