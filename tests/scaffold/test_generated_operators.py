"""What `doit new` says passes, builds: schemas and nodes drawn from the grammars are refused, or generated right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import onnx
import pytest
from onnx import helper

from opmatrix.basics.errors import UsageError
from opmatrix.scaffold import new_operator, onnx_process
from opmatrix.scaffold.draft import Draft
from opmatrix.scaffold.from_onnx import by_operator
from opmatrix.scaffold.from_torch_schema import from_schema
from tests.support.generated_operators import DOMAINS, OP_TYPES, Library, node, outcomes, schema, unlike
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

SCHEMAS = range(40)  # libraries, of 50 schemas each
NODES = range(10)  # libraries, of 50 nodes each
OFTEN = 50
FILES = ("m.onnx", 'a"""b\\N.onnx', "\udcff\n.onnx")


def of_schemas(library: int) -> Iterator[Draft]:
    """Yield the operators of those schemas that are not refused with their column."""
    random = Random(f"schemas {library}")
    for number in range(OFTEN):
        text, op_type = schema(random), random.choice(OP_TYPES)
        try:
            yield from_schema(text, domain=random.choice(DOMAINS), op_type=op_type and f"{op_type}{number}")
        except UsageError as error:
            assert re.search(r"\^ column \d+: ", str(error)), f"{text}\n{error}"


def of_nodes(library: int, folder: Path) -> Iterator[Draft]:
    """Yield the operators of those nodes that are not refused by the names of the node and its part."""
    random = Random(f"nodes {library}")
    for number in range(OFTEN):
        made, graph = node(random, number)
        imports = [helper.make_opsetid("", 18), helper.make_opsetid(made.domain, random.choice((1, 3)))]
        onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), folder / "m.onnx")
        try:
            shown = random.choice(FILES)
            found = by_operator(onnx_process.describe(str(folder / "m.onnx")), shown)
            yield from new_operator.each(found, shown, "")
        except UsageError as error:
            assert re.search(rf"{made.op_type}.* cannot be declared|cannot be declared so:", str(error)), (
                f"{made}\n{error}"
            )


def tried(drafts: Iterator[Draft], folder: Path, *, linked: bool) -> Library:
    """Write a library, check its types and compile its C++; those of each change are not linked, which takes longer."""
    library = Library(paths=Project.copy(folder / "project", operators=()).paths, drafts=unlike(drafts))
    library.write()
    assert len(library.drafts) > 10
    assert library.type_errors() == ""
    assert library.compile_errors(folder, linked=linked) == ""
    return library


@pytest.mark.parametrize("library", SCHEMAS)
def test_each_schema_is_refused_with_its_column_or_compiles(library: int, tmp_path: Path) -> None:
    tried(of_schemas(library), tmp_path, linked=library > 0)


@pytest.mark.parametrize("library", NODES)
def test_each_node_is_refused_or_compiles(library: int, tmp_path: Path) -> None:
    tried(of_nodes(library, tmp_path), tmp_path, linked=library > 0)


# Of each kind of fault one: these are verified for each change.
KINDS = [
    "my::k16(Tensor x, int self, int out) -> Tensor",  # a handed example of issue 33
    "my::bytes(Tensor count, int text=-9223372036854775808, str strings='a\"b??/\\\\') -> Tensor",
    "my::strings(Tensor create_kernel_v2, float errno=1e-46, str run='%s') -> Tensor",
    "my::math(Tensor std, int double, bool context=True) -> (Tensor, Tensor)",
    "my::text(Tensor(a!) stack, Scalar TensorView=2) -> Tensor(a!)",
    "my::stream_(Tensor x, Tensor y) -> Tensor",  # which torch takes for the in-place one of my::stream
    "my::shape(Tensor x) -> Tensor",
]


@pytest.mark.parametrize("part", ["kinds", *range(10)])
def test_new_operators_are_verified(part: str | int, tmp_path: Path) -> None:
    """Ten of each of eight libraries of schemas and of two of nodes, and one of each kind."""
    project = Project.copy(tmp_path / "project", operators=())
    if part == "kinds":
        made = (from_schema(text, domain="my.domain") for text in KINDS)
    else:
        made = of_schemas(int(part)) if int(part) < 8 else of_nodes(int(part), tmp_path)
    drafts = unlike(made)[:10]
    found = outcomes(project, drafts, "opsets=18")
    assert {*found.values()} == {"verified"} and {op for op, _ in found} == {d.spec.name for d in drafts}
