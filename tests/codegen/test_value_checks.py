"""The generated checks of values: their text, and what they say, compiled without a framework."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.codegen import bindings
from opmatrix.codegen.cpp import CPP_TYPES
from opmatrix.spec import Attribute, DType, Input, OpSpec, ValueRule
from tests.codegen.test_cpp_bindings import every_kind
from tests.support.building import compile_program
from tests.support.ruled import ruled

INDEX = ValueRule(index_into="N")
OFFSETS = ValueRule(minimum=0, maximum="N", sorted="ascending", spans=True)


def text(spec: OpSpec, file: str) -> str:
    """Return a generated file with each run of spaces and line ends as one space, and none inside parentheses."""
    return " ".join(bindings.render(spec)[file].split()).replace("( ", "(").replace(" )", ")")


def test_both_bindings_check_the_view_that_the_kernel_gets() -> None:
    spec = ruled(INDEX, attributes=())
    torch, ort = text(spec, "torch.cc"), text(spec, "ort.cc")
    checked = "const auto v_values = v.view<std::int64_t>(); check_v_values(v_values, x.sizes());"
    assert checked in torch and checked in ort
    assert "compute(x.view<T>(), i.view<I>(), v_values, " in torch
    assert "compute(x.view<T>(), i.view<I>(), v_values, y)" in ort
    assert torch.count("v.view<") == ort.count("v.view<") == 1, "one copy of a strided tensor"


@pytest.mark.parametrize(
    ("kind", "call", "argument"),
    [
        ("optional", "if (v_values) { check_v_values(*v_values, x.sizes()); }", "v_values"),
        ("variadic", "for (const auto& item : v_values) { check_v_values(item, x.sizes()); }", "v_values.list()"),
    ],
)
def test_inputs_that_may_be_absent_or_many(kind: str, call: str, argument: str) -> None:
    x = Input(name="x", type="T", dims=("N", "C"))
    i = Input(name="i", type="I", dims=("M",))
    v = Input(name="v", type="int64", dims=("M",), values=INDEX, **{kind: True})  # type: ignore[arg-type]
    for file in ("torch.cc", "ort.cc"):
        code = text(ruled(INDEX, inputs=(x, i, v)), file)
        assert call in code and f"i.view<I>(), {argument}, groups" in code


SIGNATURE = "void check_v_values(const TensorView<const T>& v, Sizes x, "
STRIDE = Attribute(name="stride", kind="ints", minimum=1)
WRONG = (Attribute(name="wrong", kind="int"), Attribute(name="wrong_", kind="float"))
# The rule, the operator's attributes (none: those of `ruled`), and what each file has.
TEXTS: dict[str, tuple[ValueRule, tuple[Attribute, ...], dict[str, list[str]]]] = {
    "limits are sizes and attributes": (ValueRule(minimum="groups", maximum="(N - C) // 2"), (), {
        "torch.cc": ["check_v_values(v_values, x.sizes(), groups);"],
        "ort.cc": ["check_v_values(v_values, x.sizes(), groups_);"],
        "checks.h": [f"{SIGNATURE}std::int64_t groups) {{", '#include "sizes.h"',
                     "wrong_element(v, between(groups, floor_divide(x[0] - x[1], 2)), AnyOrder{});"],
    }),
    "limits are in the language of sizes": (ValueRule(maximum="x.shape[-1]*stride[0] + v.rank"), (STRIDE,), {
        "ort.cc": ["check_v_values(v_values, x.sizes(), stride_.list());"],
        "checks.h": [f"{SIGNATURE}List<std::int64_t> stride) {{",
                     "NoLimit{}, x[x.rank - 1] * stride[0] + v.sizes.rank)",
                     "stride.size() >= 1"],  # before the rule reads it
    }),
    "an axis": (ValueRule(index_into="x.shape[dim]"), (Attribute(name="dim", kind="int"),), {
        "checks.h": ["dim must be an axis of x"],
    }),
    "the ends of a span": (ValueRule(minimum="groups", maximum="N - C", sorted="descending", spans=True), (), {
        "checks.h": ["wrong_element(v, between(groups, x[0] - x[1]), Descending{}, Ends{x[0] - x[1], groups});"],
    }),
    "no variable has the name of an argument": (ValueRule(minimum="wrong"), WRONG, {
        "checks.h": ["const WrongElement<T> wrong_ = wrong_element(v, between(wrong, NoLimit{}), AnyOrder{});"],
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXTS)
def test_the_generated_text(case: str) -> None:
    rule, attributes, expected = TEXTS[case]
    spec = ruled(rule, attributes=attributes) if attributes else ruled(rule)
    assert [(file, part) for file, parts in expected.items() for part in parts if part not in text(spec, file)] == []


def test_no_code_for_what_a_rule_does_not_have() -> None:
    in_kernel = ruled(ValueRule(index_into="N", unique=True, checked_by="kernel"))
    for spec, absent in ((every_kind(), "_values"), (in_kernel, "v_values")):
        assert not [name for name, code in bindings.render(spec).items() if absent in code]
    assert '#include "sizes.h"' not in text(ruled(INDEX), "checks.h")
    without_ends = text(ruled(ValueRule(minimum=0, maximum="N", sorted="ascending")), "checks.h")
    assert "end" not in without_ends.lower().replace("ascending", "")


# The rule, the dtype of v, its elements in C++, in rows of two, and what the check says.
NO_COLUMN = [""]
SAID: list[tuple[ValueRule, DType, list[str], str]] = [
    (INDEX, "int64", ["0", "2", "1", "0"], ""),
    (INDEX, "int64", ["0", "2", "3", "9"], "v must be in [0, N) with N = 3 as in x, got 3 at (1, 0)"),
    (INDEX, "uint8", ["0", "255"], "v must be in [0, N) with N = 3 as in x, got 255 at (0, 1)"),
    (INDEX, "int64", ["0", "INT64_MIN"], "v must be in [0, N) with N = 3 as in x, got -9223372036854775808 at (0, 1)"),
    (ValueRule(index_into="N", negative=True), "int8", ["-3", "2"], ""),
    (ValueRule(index_into="N", negative=True), "int8", ["2", "-4"], "v must be in [-N, N) with N = 3 as in x, got -4 at (0, 1)"),
    (ValueRule(index_into="N*C", negative=True), "int8", ["-6", "6"], "v must be in [-(N*C), N*C) with N = 3 as in x and C = 2 as in x, got 6 at (0, 1)"),
    (ValueRule(index_into="K"), "int16", ["1", "2"], "v must be in [0, K) with K = 2, got 2 at (0, 1)"),
    (ValueRule(maximum="groups"), "uint64", ["7", "8"], "v must be at most groups with groups = 7, got 8 at (0, 1)"),
    (ValueRule(maximum="groups"), "uint64", ["7", "UINT64_MAX"], "v must be at most groups with groups = 7, got 1.8446744073709552e+19 at (0, 1)"),
    (ValueRule(minimum=2**63), "uint64", ["9223372036854775808u", "7"], "v must be at least 9223372036854775808, got 7 at (0, 1)"),
    (ValueRule(minimum=-(2**63), maximum=-1), "int64", ["INT64_MIN", "0"], "v must be at least -9223372036854775808 and at most -1, got 0 at (0, 1)"),
    (ValueRule(maximum="limit"), "float32", ["0.1f", "INFINITY"], "v must be at most limit with limit = 0.1, got inf at (0, 1)"),
    (ValueRule(maximum=0.1), "float32", ["0.1f", "0.1f"], ""),  # a limit is rounded to the dtype
    (ValueRule(maximum=0.1), "float32", ["0.1f", "0.10000001f"], "v must be at most 0.1, got 0.10000001 at (0, 1)"),
    (ValueRule(maximum=0.1), "float64", ["0.1", "0.10000000000000002"], "v must be at most 0.1, got 0.10000000000000002 at (0, 1)"),
    (ValueRule(minimum=0), "float64", ["-0.0", "NAN"], "v must be at least 0, got nan at (0, 1)"),
    (ValueRule(finite=True), "float32", ["3.4028235e38f", "-INFINITY"], "v must be finite, got -inf at (0, 1)"),
    (ValueRule(finite=True, minimum=1.0), "float64", ["1.0", "INFINITY"], "v must be finite and at least 1, got inf at (0, 1)"),
    (ValueRule(allowed=(-1, 4)), "int32", ["-1", "4", "4", "0"], "v must be one of -1, 4, got 0 at (1, 1)"),
    (ValueRule(allowed=(0.1, 2.0)), "float32", ["0.1f", "2.0f"], ""),
    (ValueRule(sorted="ascending"), "int32", ["1", "1", "0", "5"], ""),  # each row has its own order
    (ValueRule(sorted="ascending"), "int32", ["1", "1", "5", "4"], "v must be sorted in ascending order along its last axis, got 4 after 5 at (1, 1)"),
    (ValueRule(sorted="descending"), "float64", ["2.0", "NAN"], "v must be sorted in descending order along its last axis, got nan after 2 at (0, 1)"),
    (ValueRule(sorted="ascending", unique=True), "int32", ["1", "1"], "v must be strictly ascending along its last axis, got 1 after 1 at (0, 1)"),
    (ValueRule(sorted="descending", unique=True), "int32", ["2", "1", "1", "1"], "v must be strictly descending along its last axis, got 1 after 1 at (1, 1)"),
    (OFFSETS, "int64", ["0", "3", "0", "3"], ""),  # each row
    (OFFSETS, "int64", ["0", "3", "1", "3"], "v must start at 0 and end at N along its last axis with N = 3 as in x, got 1 at (1, 0)"),
    (OFFSETS, "uint8", ["0", "2", "0", "3"], "v must start at 0 and end at N along its last axis with N = 3 as in x, got 2 at (0, 1)"),
    (OFFSETS, "int64", ["3", "0"], "v must start at 0 and end at N along its last axis with N = 3 as in x, got 3 at (0, 0)"),
    (OFFSETS, "int64", ["0", "4"], "v must be at least 0 and at most N with N = 3 as in x, got 4 at (0, 1)"),
    (OFFSETS, "int64", [], ""),  # no row
    (OFFSETS, "int64", NO_COLUMN, "v must have at least one element along its last axis, got shape (2, 0)"),
    (replace(OFFSETS, sorted="descending", unique=True), "int32", ["3", "0"], ""),
    (replace(OFFSETS, sorted="descending"), "int32", ["3", "1"], "v must start at N and end at 0 along its last axis with N = 3 as in x, got 1 at (0, 1)"),
    (replace(OFFSETS, maximum=0.1), "float32", ["-0.0f", "0.1f"], ""),
    (replace(OFFSETS, maximum=0.1), "float32", ["0.0f", "0.099999994f"], "v must start at 0 and end at 0.1 along its last axis, got 0.099999994 at (0, 1)"),
    (ValueRule(sorted="ascending", minimum=0), "int32", ["-2", "1"], "v must be at least 0, got -2 at (0, 0)"),
    (ValueRule(non_empty=True), "bool", [], "v must have at least one element, got shape (0, 2)"),
    (ValueRule(non_empty=True), "bool", ["true", "false"], ""),
    (INDEX, "int64", [], ""),
]  # fmt: skip


@pytest.mark.compile
def test_what_the_checks_say(tmp_path: Path) -> None:
    """One program with the generated checks of all rules."""
    include, calls = tmp_path / "include", []
    include.mkdir()
    for number, (rule, dtype, elements, _) in enumerate(SAID):
        name, type = f"tied{number}", CPP_TYPES[dtype]
        spec = ruled(rule, type=dtype, name=name)
        (include / f"{name}.h").write_text(bindings.render(spec)["checks.h"])
        arguments = [a for a in ("Sizes{x, 2}", "groups", "limit") if a in call_arguments(spec)]
        shape = "{2, 0}" if elements is NO_COLUMN else f"{{{len(elements) // 2}, 2}}"
        calls.append(
            f"  {{ const {type} data[] = {{{', '.join(elements) or '0'}}}; const std::int64_t v[] = {shape};\n"
            f"    say([&] {{ opmatrix::{name}::check_v_values({', '.join([f'TensorView<const {type}>{{data, Sizes{{v, 2}}}}', *arguments])}); }}); }}"
        )
    headers = "\n".join(f'#include "{path.name}"' for path in sorted(include.iterdir()))
    program = compile_program(
        f"""
#include <cmath>
#include <cstdio>
#include "kernel_error.h"
{headers}
using namespace opmatrix;
template <typename Call> void say(const Call& call) {{
  try {{ call(); std::puts(""); }} catch (const Error& error) {{ std::puts(error.what()); }}
}}
int main() {{
  const std::int64_t x[] = {{3, 2}}, groups = 7;
  const float limit = 0.1f;
  (void)x; (void)groups; (void)limit;
{chr(10).join(calls)}
}}
""",
        tmp_path,
        f"-I{include}",
        "-fsanitize=address,undefined",
    )
    done = subprocess.run([program], capture_output=True, text=True)
    said = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert (said, done.stderr) == ([message for *_, message in SAID], ""), json.dumps(said, indent=1)


def call_arguments(spec: OpSpec) -> list[str]:
    """Return the arguments after the tensor that the check of a rule takes."""
    from opmatrix.codegen.checks import value_checks

    (check,) = value_checks(spec)
    named = {"x.sizes()": "Sizes{x, 2}"}
    return [named.get(argument, argument) for argument in check.torch_arguments[1:]]
