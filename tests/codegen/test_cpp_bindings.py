"""The generated C++: its checks, its lines, and declarations unlike group_norm's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.codegen import bindings, cpp
from opmatrix.codegen.size_code import SizeCode
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Dims, FromKernel, OnnxOp, OpSpec, Output, SameAs
from tests.support.specs import FLOATS, attribute, declare

ROOT = Path(__file__).resolve().parents[2]
# Next to this Python where the test environment is not on PATH.
CLANG_FORMAT = shutil.which("clang-format") or shutil.which("clang-format", path=str(Path(sys.executable).parent))

needs_clang_format = pytest.mark.skipif(CLANG_FORMAT is None, reason="clang-format is not installed")


MIX: dict[str, Any] = {
    "torch": "my_namespace::mix_of_two_tensors_with_a_long_name",
    "onnx": OnnxOp(domain="my.domain", op_type="Mix", since_version=3, versions=(3,)),
    "summary": "Mixes.",
    "types": FLOATS,
    "tolerances": {},
}


def spec(**fields: Any) -> OpSpec:
    """Return a declaration with two type variables, equal sizes, and an attribute with every kind of limit."""
    types = FLOATS | {"I": ("int32", "int64", "bool")}
    made = declare(
        "mix(matrix: T[N, N, 3], indices_of_the_rows_to_take: I[K], other_matrix_of_the_same_size: T[N, K],"
        " anything: int64) -> mixed: T like matrix, taken: I like indices_of_the_rows_to_take",
        attribute("alpha=1.0", minimum=0.5, maximum=2.0),
        Attribute(name="beta_of_the_mixture", kind="float", allowed=(0.25, 0.5, 1.0), torch_name="beta"),
        **MIX | {"types": types},
    )
    return replace(made, **fields)


def plain() -> OpSpec:
    """Return a declaration without type variables and attributes."""
    return declare("mix(x: float32) -> y: float32 like x", **MIX | {"types": {}})


def every_kind() -> OpSpec:
    """Return a declaration with every kind of input, attribute and output."""
    return declare(
        "mix(x: T[N, 4], w: T[N]?, mask: bool?, more: int64[N]*)"
        " -> y: T like x, counts: int64[N, 2*(N+1), 3, N // 2], scalar: bool[], found: int64[?, ?]",
        Attribute(name="axis", kind="int", minimum=-2, maximum=1),
        attribute("mode='linear'", allowed=("linear", "cubic")),
        attribute("exact=False"),
        attribute("rates=(0.5, 1.0)", minimum=0.5, torch_name="speeds"),
        Attribute(name="pads", kind="ints", minimum=0, maximum=3, default=()),
        attribute("flags_of_the_axes=(True, False)"),
        **MIX,
    )


def bins() -> OpSpec:
    """Return a declaration whose output sizes are attributes."""
    attributes = (Attribute(name="bins", kind="int", torch_name="pooled", minimum=1),)
    return declare("mix(x: T[N, M]) -> y: T[N, bins, 2*bins - M]", *attributes, **MIX)


def test_sizes_are_taken_from_attributes() -> None:
    files = bindings.render(bins())
    torch = "const std::int64_t y_sizes[] = {x.sizes()[0], bins, 2 * bins - x.sizes()[1]};"
    assert torch in files["torch.cc"]
    assert torch.replace("bins", "bins_") in files["ort.cc"]
    assert "check_computed" in files["torch.cc"]


def windows() -> OpSpec:
    """Return a declaration whose output size may be negative."""
    return declare("mix(x: T[N, M]) -> y: T[(N - 3) // 2 + 1, M]", **MIX)


@pytest.mark.parametrize("declared", [spec, plain, every_kind, windows, bins])
def test_lines_except_strings_are_short(declared: Callable[[], OpSpec]) -> None:
    files = bindings.render(declared())
    assert [line for text in files.values() for line in text.splitlines() if len(line) > 120 and '"' not in line] == []


@needs_clang_format
def test_native_is_formatted_as_clang_format_would() -> None:
    paths = [str(p) for p in (ROOT / "native").rglob("*") if p.suffix in (".h", ".cc")]
    done = subprocess.run(
        [str(CLANG_FORMAT), "--dry-run", "--Werror", *paths], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_size_is_compared_where_its_name_appears_again() -> None:
    text = " ".join(bindings.render(spec())["checks.h"].split())
    assert "matrix.rank == 3 && matrix[1] == matrix[0] && matrix[2] == 3" in text
    assert '"mix: matrix must have shape (N, N, 3), got ", matrix' in text
    assert '(N, K) with N = ", matrix[0],' in text and '" as in matrix and K = ", indices_of' in text
    assert "anything.rank" not in text


def test_limits_of_attributes_are_checked() -> None:
    files = bindings.render(spec())
    torch = " ".join(files["torch.cc"].split())
    assert 'alpha >= 0.5 && alpha <= 2.0, "mix: alpha must be at least 0.5 and at most 2, got ", alpha );' in torch
    # In torch a double under torch's name; in ONNX a float, compared as a float, under ONNX's name.
    assert '"mix: beta must be one of 0.25, 0.5, 1.0, got ", beta' in torch
    assert "beta_of_the_mixture_ == 0.25f || " in files["ort.cc"]
    assert 'get_float("beta_of_the_mixture", nullptr)' in files["ort.cc"]  # no default: missing is an error


def test_every_choice_of_dtypes_has_a_kernel_call() -> None:
    files = bindings.render(spec())
    assert files["compute.h"].count("void compute(") == 6
    assert "Kernel<double, std::int64_t>" in files["ort.cc"]
    assert "run<float, bool>(" in files["torch.cc"]


def test_only_an_elementwise_operator_looks_at_memory_formats() -> None:
    usual, elementwise = (bindings.render(replace(plain(), elementwise=value)) for value in (False, True))
    assert "Format" not in usual["torch.cc"] and "elementwise" not in usual["torch.cc"]
    assert '#include "torch_elementwise.h"' in elementwise["torch.cc"]
    assert "common_format.view<float>(x)" in elementwise["torch.cc"]
    assert elementwise["ort.cc"] == usual["ort.cc"] and elementwise["checks.h"] == usual["checks.h"]


def test_what_is_generated_for_which_operator() -> None:
    """The arguments have the order of the declaration, whose comments change nothing; a kernel may be a string."""
    group_norm = load_operator(Paths(ROOT), "group_norm").spec
    files = bindings.render(group_norm)
    assert "group_norm(x, num_groups, scale, bias, epsilon, y);" in files["kernel.cc"]
    assert bindings.render(replace(group_norm, summary="Other words.")) == files
    library = bindings.ort_library(["one", "two"])
    assert "{one::ort_operator(), two::ort_operator()}" in library
    assert bindings.render(spec(uses=("one", "two"))) == {"ort_library.cc": library}
    assert bindings.render(spec(runtime="contrib")) == {}
    files = bindings.render(spec(kernel="// the kernel"))
    assert files["kernel.h"] == "// the kernel" and '#include "kernel.h"' in files["kernel.cc"]


def test_a_size_below_0_is_checked_in_both_bindings() -> None:
    for name, op in (("torch.cc", '"mix"'), ("ort.cc", "kOp")):
        text = bindings.render(windows())[name]
        assert '#include "sizes.h"' in text
        assert f'check_computed({op}, "y", Sizes{{y_sizes, 2}});' in text
        assert "sizes.h" not in bindings.render(every_kind())[name]


@pytest.mark.parametrize(
    "shape",
    [
        SameAs(input="x", replace={"dim": "k"}),
        SameAs(input="x", replace={0: "2*N"}),
        SameAs(input="x", replace={"dim": None}),
        Dims(dims=("k", "...")),
        FromKernel(input="x", replace={"dim": "S"}),
    ],
)
def test_sizes_of_any_rank_have_their_header(shape: SameAs | Dims | FromKernel) -> None:
    output = Output(name="y", type="T", shape=shape)
    declared = declare("mix(x: T[N, ...], dim=-1)", attribute("k=1", minimum=0), output, **MIX)
    header = "kernel_sizes.h" if isinstance(shape, FromKernel) else "sizes.h"
    for name in ("torch.cc", "ort.cc"):
        assert f'#include "{header}"' in bindings.render(declared)[name]


def test_expressions_of_sizes_become_cpp() -> None:
    size = SizeCode(spec=windows(), shape=lambda name: f"{name}.sizes()", attribute=str)
    assert size("2*(N+1)") == "2 * (x.sizes()[0] + 1)"
    assert size("N // 2") == "x.sizes()[0] / 2"
    assert size("(N - 3) // 2") == "floor_divide(x.sizes()[0] - 3, 2)"
    assert size("2 * (N // 2)") == "2 * (x.sizes()[0] / 2)"


def test_a_long_call_has_one_argument_per_line() -> None:
    assert cpp.call("f", [], tail=" {") == "f() {"
    assert cpp.call("f", ["a", "b"]) == "f(a, b)"
    one, two = "a" * 50, "b" * 50
    assert cpp.call("f", [one, two], tail=" {") == f"f(\n    {one},\n    {two}\n) {{"
