"""The mutants of every operator of this project and of examples/borrowed."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from tests.support.projects import ROOT, write_files

pytest.importorskip("tree_sitter_cpp", reason="needs the extra mutate")

PROJECTS = (ROOT, ROOT / "examples/borrowed")
OPERATORS = [(root, path.parent.name) for root in PROJECTS for path in sorted(root.glob("ops/*/spec.py"))]
KERNELS = sorted([*ROOT.glob("native/*/kernel.h"), *ROOT.glob("*/*/native/*/kernel.h")])


@functools.cache
def mutants_of(root: Path, name: str) -> tuple[OpSpec, list[Mutant]]:
    spec = load_operator(Paths(root), name).spec
    return spec, operator_mutants(Paths(root), spec)


@pytest.mark.parametrize(("root", "name"), OPERATORS, ids=lambda value: getattr(value, "name", value))
def test_the_mutants_of_an_operator(root: Path, name: str) -> None:
    """Each is another text that is C++ or Python, with a key of its own and its line; its marks are of some of them."""
    spec, mutants = mutants_of(root, name)
    assert mutants
    assert len({m.key for m in mutants}) == len({(m.part, m.start, m.end, m.after) for m in mutants}) == len(mutants)
    for mutant in mutants:
        own = mutant.part == "kernel" and spec.kernel is not None
        text = str(spec.kernel) if own else (root / mutant.path).read_text()
        changed = mutant.applied(text)
        assert changed != text and "@@" in mutant.diff(text)
        if mutant.part == "kernel":
            assert unparsed_lines(parse(changed)) == [], mutant.diff(text)
        else:
            ast.parse(changed)
        lines = (root / mutant.path).read_text().splitlines()
        assert mutant.before.split("\n")[0] in lines[mutant.line - 1] and mutant.change.count("«") == 1, mutant
    marks = read_marks(root / f"ops/{name}/{FILE}", mutants)
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
    assert counts.total() >= fewest and len(counts) >= 14 and counts.keys() <= KINDS.keys()
    assert max(counts.values()) <= 0.25 * counts.total()


def test_keys_do_not_depend_on_edits_elsewhere() -> None:
    path = "native/group_norm/kernel.h"
    source = (ROOT / path).read_text()

    def keys(old: str = "", new: str = "", function: str = "") -> list[str]:
        assert old in source
        found = kernel_mutants(path, source.replace(old, new) if old else source, {})
        return [m.key for m in found if m.function == function or not function]

    before = keys()
    assert keys("struct Moments {", "// A comment of two\n// lines.\nstruct Moments {") == before
    spaced = "double offset =  // per element\n      block.sum *\n     "
    assert keys("double offset = block.sum *", spaced) == before
    edit = "double square = 0;", "double square = 0; g(0 < 1);"
    for function in ("normalize", "normalize_group", "checked_groups", "group_norm", "sums"):
        assert keys(*edit, function) == keys(function=function)
    assert not {*keys(function="moments")} - {*keys(*edit, "moments")}
    assert 0 < len({*before} - {*keys("sums[chain] += d;", "sums[chain] += 2 * d;")}) < 12


def test_a_kernel_in_a_declaration_has_the_lines_of_the_declaration() -> None:
    spec, mutants = mutants_of(ROOT, "dual_residual")
    first = next(m for m in mutants if m.kind == "result" and m.after == "{}")
    assert (first.path, first.line) == ("ops/dual_residual/spec.py", 51)
    assert "+      x_residual.data[i] = {};" in first.diff(spec.kernel or "")


def test_lines_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    spec = load_operator(Paths(ROOT), "custom_op_one").spec
    text = "int f(int a) { return a; }\n\nint g(int a) { return a + ; }\n"
    write_files(tmp_path, {"native/custom_op_one/kernel.h": text})
    assert not_mutated(Paths(tmp_path), spec) == (
        "native/custom_op_one/kernel.h:3: tree-sitter cannot read this as C++ (1 such place in the file), so nothing "
        "there is mutated. Often a macro in place of a type or a keyword is the reason: write it out, or as a function"
    )
    specs = [load_operator(Paths(ROOT), name).spec for name in ("custom_op_one", "dual_residual", "gelu")]
    assert [not_mutated(Paths(ROOT), one) for one in specs] == ["", "", ""]


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
    ("fields", "expected"),
    [
        ({"kind": "float", "default": 1e-5}, "1e-05f"),
        ({"kind": "int", "default": -1}, "std::int64_t{-1}"),
        ({"kind": "bool", "default": True}, "true"),
        ({"kind": "string", "default": 'a"b'}, '"a\\"b"'),
        ({"kind": "string", "allowed": ("min", "max")}, '"min"'),
        # Without a default, 1 or what is nearest.
        ({"kind": "float"}, "1.0f"),
        ({"kind": "int", "minimum": 3}, "std::int64_t{3}"),
        ({"kind": "float", "maximum": 0.5}, "0.5f"),
        ({"kind": "ints"}, None),
        ({"kind": "tensor"}, None),
    ],
    ids=str,
)
def test_the_constant_in_place_of_an_attribute(fields: dict[str, Any], expected: str | None) -> None:
    spec = replace(load_operator(Paths(ROOT), "custom_op_one").spec, attributes=(Attribute(name="a", **fields),))
    assert attribute_constants(spec) == ({} if expected is None else {"a": expected})


def test_constants_and_shapes_of_operators() -> None:
    """A list is an array in a lambda. Tensors of one declared shape have one text."""
    spec = load_operator(Paths(ROOT), "nms").spec
    assert attribute_constants(spec)["coordinates"] == (
        "[] { static const std::int64_t values[] = {0, 1, 2, 3}; return opmatrix::List<std::int64_t>{values, 4}; }()"
    )
    shapes = tensor_shapes(spec)
    assert shapes["scores"] == shapes["kept"] == shapes["valid"] != shapes["boxes"] and "indices" not in shapes
    assert {*tensor_shapes(load_operator(Paths(ROOT), "dual_residual").spec).values()} == {"x"}
