"""The mutants of every operator of this project and of examples/borrowed."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from opmatrix.addons.mutate.cpp import parse, unparsed_lines
from opmatrix.addons.mutate.mutant import FILE, Mutant, read_marks
from opmatrix.addons.mutate.operator_mutants import (
    KINDS,
    attribute_constants,
    kernel_mutants,
    lines_above,
    not_mutated,
    operator_mutants,
    tensor_shapes,
)
from opmatrix.basics.errors import SpecError
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, OpSpec

pytest.importorskip("tree_sitter_cpp", reason="needs the extra mutate")

ROOT = Path(__file__).parents[3]
PROJECTS = (ROOT, ROOT / "examples/borrowed")
OPERATORS = [(root, path.parent.name) for root in PROJECTS for path in sorted(root.glob("ops/*/spec.py"))]
KERNELS = sorted([*ROOT.glob("native/*/kernel.h"), *ROOT.glob("*/*/native/*/kernel.h")])
each_operator = pytest.mark.parametrize(("root", "name"), OPERATORS, ids=lambda value: getattr(value, "name", value))


@functools.cache
def mutants_of(root: Path, name: str) -> tuple[OpSpec, list[Mutant]]:
    spec = load_operator(Paths(root), name).spec
    return spec, operator_mutants(Paths(root), spec)


def text_of(root: Path, spec: OpSpec, mutant: Mutant) -> str:
    if mutant.part == "kernel" and spec.kernel is not None:
        return spec.kernel
    return (root / mutant.path).read_text()


@each_operator
def test_each_mutant_is_another_text_that_is_cpp_or_python(root: Path, name: str) -> None:
    spec, mutants = mutants_of(root, name)
    assert mutants
    for mutant in mutants:
        text = text_of(root, spec, mutant)
        changed = mutant.applied(text)
        assert changed != text
        if mutant.part == "kernel":
            assert unparsed_lines(parse(changed)) == [], mutant.diff(text)
        else:
            ast.parse(changed)


@each_operator
def test_each_mutant_has_a_key_of_its_own_and_its_line(root: Path, name: str) -> None:
    spec, mutants = mutants_of(root, name)
    assert len({m.key for m in mutants}) == len({(m.part, m.start, m.end, m.after) for m in mutants}) == len(mutants)
    for mutant in mutants:
        lines = (root / mutant.path).read_text().splitlines()
        assert mutant.before.split("\n")[0] in lines[mutant.line - 1], mutant
        assert mutant.change.count("«") == 1
        assert "@@" in mutant.diff(text_of(root, spec, mutant))


@each_operator
def test_its_marks_are_of_mutants_that_exist(root: Path, name: str) -> None:
    marks = read_marks(root / f"ops/{name}/{FILE}", mutants_of(root, name)[1])
    assert bool(marks) == (root / f"ops/{name}/{FILE}").is_file()


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: f"{path.parents[2].name}-{path.parent.name}")
def test_every_line_of_every_kernel_is_parsed(path: Path) -> None:
    assert unparsed_lines(parse(path.read_text())) == []


@pytest.mark.parametrize(
    ("name", "fewest"),
    [("group_norm", 250), ("nms", 300), ("roi_align", 300), ("radius_graph", 150), ("dual_residual", 35),
     ("custom_op_one", 25), ("causal_conv1d", 100)],
)  # fmt: skip
def test_a_kernel_has_enough_mutants_of_most_kinds(name: str, fewest: int) -> None:
    root = next(root for root, operator in OPERATORS if operator == name)
    counts = Counter(m.kind for m in mutants_of(root, name)[1] if m.part == "kernel")
    assert counts.total() >= fewest
    assert len(counts) >= 14
    assert counts.keys() <= KINDS.keys()
    assert max(counts.values()) <= 0.25 * counts.total()


def keys(mutants: Sequence[Mutant], function: str = "") -> list[str]:
    return [m.key for m in mutants if m.function == function or not function]


def test_keys_do_not_depend_on_edits_elsewhere() -> None:
    path = "native/group_norm/kernel.h"
    source = (ROOT / path).read_text()
    before = kernel_mutants(path, source, {})
    moved = source.replace("struct Moments {", "// A comment of two\n// lines.\nstruct Moments {")
    assert keys(kernel_mutants(path, moved, {})) == keys(before)
    spaced = source.replace("double offset = block.sum *", "double offset =  // per element\n      block.sum *\n     ")
    assert keys(kernel_mutants(path, spaced, {})) == keys(before)
    assert spaced.count("per element") == 1
    edited = kernel_mutants(path, source.replace("double square = 0;", "double square = 0; g(0 < 1);"), {})
    for function in ("normalize", "normalize_group", "checked_groups", "group_norm", "sums"):
        assert keys(edited, function) == keys(before, function)
    assert not {*keys(before, "moments")} - {*keys(edited, "moments")}
    changed = kernel_mutants(path, source.replace("sums[chain] += d;", "sums[chain] += 2 * d;"), {})
    assert 0 < len({*keys(before)} - {*keys(changed)}) < 12


def test_a_kernel_in_a_declaration_has_the_lines_of_the_declaration() -> None:
    spec, mutants = mutants_of(ROOT, "dual_residual")
    first = next(m for m in mutants if m.kind == "result" and m.after == "{}")
    assert (first.path, first.line) == ("ops/dual_residual/spec.py", 51)
    assert "+      x_residual.data[i] = {};" in first.diff(spec.kernel or "")


def test_lines_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    spec = load_operator(Paths(ROOT), "custom_op_one").spec
    kernel = Paths(tmp_path).kernel(spec.name)
    kernel.parent.mkdir(parents=True)
    kernel.write_text("int f(int a) { return a; }\n\nint g(int a) { return a + ; }\n")
    assert not_mutated(Paths(tmp_path), spec) == (
        "native/custom_op_one/kernel.h:3: tree-sitter cannot read this as C++ (1 such place in the file), so nothing "
        "there is mutated. Often a macro in place of a type or a keyword is the reason: write it out, or as a function"
    )
    assert not_mutated(Paths(ROOT), spec) == ""
    assert not_mutated(Paths(ROOT), load_operator(Paths(ROOT), "dual_residual").spec) == ""
    assert not_mutated(Paths(ROOT), load_operator(Paths(ROOT), "gelu").spec) == ""


def test_a_kernel_that_is_computed_is_one_sentence() -> None:
    with pytest.raises(SpecError) as error:
        lines_above('KERNEL = "a" + B', "ab", where="ops/f/spec.py")
    assert str(error.value) == (
        "ops/f/spec.py: no string in it is the kernel, which is computed, so doit mutate cannot tell lines and "
        "changes. Write the kernel as one string, or to kernel.h"
    )
    assert lines_above('A = 1\nB = """\\\nint a;"""', "int a;", where="") == 2
    assert lines_above('B = "int a;"', "int a;", where="") == 0


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (Attribute(name="a", kind="float", default=1e-5), {"a": "1e-05f"}),
        (Attribute(name="a", kind="int", default=-1), {"a": "std::int64_t{-1}"}),
        (Attribute(name="a", kind="bool", default=True), {"a": "true"}),
        (Attribute(name="a", kind="string", default='a"b'), {"a": '"a\\"b"'}),
        (Attribute(name="a", kind="string", allowed=("min", "max")), {"a": '"min"'}),
        # Without a default, 1 or what is nearest.
        (Attribute(name="a", kind="float"), {"a": "1.0f"}),
        (Attribute(name="a", kind="int", minimum=3), {"a": "std::int64_t{3}"}),
        (Attribute(name="a", kind="float", maximum=0.5), {"a": "0.5f"}),
        (Attribute(name="a", kind="ints"), {}),
        (Attribute(name="a", kind="tensor"), {}),
    ],
    ids=str,
)
def test_the_constant_in_place_of_an_attribute(attribute: Attribute, expected: dict[str, str]) -> None:
    spec = load_operator(Paths(ROOT), "custom_op_one").spec
    assert attribute_constants(type(spec)(**{**vars(spec), "attributes": (attribute,)})) == expected


def test_a_list_is_an_array_in_a_lambda() -> None:
    constant = attribute_constants(load_operator(Paths(ROOT), "nms").spec)["coordinates"]
    assert constant == (
        "[] { static const std::int64_t values[] = {0, 1, 2, 3}; return opmatrix::List<std::int64_t>{values, 4}; }()"
    )


def test_tensors_of_one_declared_shape() -> None:
    shapes = tensor_shapes(load_operator(Paths(ROOT), "nms").spec)
    assert shapes["scores"] == shapes["kept"] == shapes["valid"] != shapes["boxes"]
    assert "indices" not in shapes
    shapes = tensor_shapes(load_operator(Paths(ROOT), "dual_residual").spec)
    assert {*shapes.values()} == {"x"}
