"""The property test finds a kernel that is wrong for one kind of input, and shrinks to an input of that kind."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.search import draw_models, drawn
from tests.support.building import with_native
from tests.support.forked import forked
from tests.support.projects import edited
from tests.support.specs import declare

pytestmark = [pytest.mark.torch, pytest.mark.compile]

REFERENCE = "def each(x, w): return x.copy(), w.copy()"
KERNEL = """\
#pragma once
#include <cstdint>
#include <limits>
#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::each {
template <typename T>
void each(TensorView<const T> x, TensorView<const T> w, TensorView<T> y, TensorView<T> z) {
  using Limits [[maybe_unused]] = std::numeric_limits<T>;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const T v = x.data[i];
    y.data[i] = v;
  }
  for (std::int64_t i = 0; i < w.numel(); ++i) z.data[i] = w.data[i];
  // after
}
}  // namespace opmatrix::each
"""
SPEC = declare(
    "each(x: T, w: T[N]) -> y: T like x, z: T like w",
    torch="test::each",
    summary="The same numbers.",
    types={"T": ("float32", "int64")},
    kernel=KERNEL,
)
OPERATOR = Operator(spec=SPEC, models=())

# The fault of the kernel, and what the message must have: the fault, and the kind in the smallest input.
NUMBERS = {
    "zero_dimensional": ("// after", "if (x.sizes.rank == 0) y.data[0] += 1;", r'y: .*"x": Random\(shape=\(\)'),
    "size_0": ("// after", 'KERNEL_CHECK(w.numel() > 0, "empty");', r"the kernel rejects .*: empty.*shape=\(0,\)"),
    "size_1": ("// after", "if (w.numel() == 1) z.data[0] += 1;", r'z: .*"w": Random\(shape=\(1,\)'),
    "size_2": ("// after", "if (w.numel() == 2) z.data[0] += 1;", r'z: .*"w": Random\(shape=\(2,\)'),
    "prime_size": ("// after", "if (w.numel() == 13) z.data[0] += 1;", r'z: .*"w": Random\(shape=\(13,\)'),
    "one_row_more": ("// after", "if (x.numel() > 0 && x.sizes[0] > 1) y.data[1] = y.data[0];", "y: "),
    "nan": ("= v;", "= v != v ? T(0) : v;", r"y: .*expected nan, got 0.*specials=\{.*nan"),
    "infinity": ("= v;", "= v > Limits::max() ? Limits::max() : v;", r"y: .*expected inf.*inf"),
    "denormal": ("= v;", "= v > 0 && v < Limits::min() ? T(0) : v;", r"y: .*got 0\.0.*specials=\{\d+: 2\.9\S+e-39"),
    "huge": ("= v;", "= v > T(1e17F) && v < T(1e20F) ? T(0) : v;", r"y: .*expected \S+e\+1[78]"),
    "tiny": ("= v;", "= v > T(0) && double(v) > 1e-20 && double(v) < 1e-18 ? T(0) : v;", r"y: .*expected \S+e-(19|20)"),
    "largest_integer": ("= v;", "= Limits::is_integer && v == Limits::max() ? v - 1 : v;", "9223372036854775807"),
    "beyond_32_bits": (
        "= v;",
        "= Limits::is_integer && double(v) > 2e9 && double(v) < 5e9 ? T(0) : v;",
        "2147483648|4294967297",
    ),
    "smallest_integer": ("= v;", "= Limits::is_integer && v == Limits::min() ? v + 1 : v;", "-9223372036854775808"),
}
# For a tensor of rank 2 and more: how the strides of each layout differ from those of all others.
STRIDES = {
    "transposed": "rank > 2 && s[rank - 2] == 1 && s[rank - 1] > 1 && s[0] > 1",
    "sliced": "rank > 1 && s[rank - 1] == 2 && s[rank - 2] != 1 && s[0] > 2",
    "expanded": "s[0] == 0 || (rank > 1 && s[1] == 0)",
    "flipped": "rank > 2 && s[0] == 1 && s[1] == sizes_[0] && s[rank - 1] > 1",
}
SHIM = "AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, std::int64_t** sizes);\n"
COPIES = "    if (!contiguous) copy_ = contiguous_copy();\n"
WRONG_COPY = """\
    std::int64_t* s = nullptr;
    check_call(aoti_torch_get_strides(tensor_.get(), &s), op_, "look at an argument");
    const auto rank = sizes_.rank;
    if (!contiguous && numel(sizes_) > 0 && rank > 0 && ({condition})) copy_.data<T>()[0] = T(77);
"""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Return a project with all files but the libraries."""
    paths = with_native(tmp_path_factory.mktemp("kinds"), "each", REFERENCE)
    reference = Reference(paths, SPEC)
    models = draw_models.collect(OPERATOR, examples=draw_models.EXAMPLES, home=paths.hypothesis)
    drawn.write(paths.drawn_inputs("each"), [drawn.evaluate(SPEC, model, reference) for model in models])
    return paths


def search(paths: Paths, kernel: str) -> str:
    """Compile a kernel; return the message of the error that the property test raises, or ""."""
    from opmatrix.codegen import write_code
    from opmatrix.toolchain import compile

    operator = replace(OPERATOR, spec=replace(SPEC, kernel=kernel))
    write_code.run(paths, operator)
    compile.run(paths, operator)

    def run() -> None:
        from opmatrix.torch_checks import property_test
        from opmatrix.torch_ops import load

        property_test.SECONDS = property_test.OVER_SECONDS = 500  # for a busy machine
        property_test.run(paths, operator, load.load(paths, operator))

    import torch  # noqa: F401  # once for all children

    return forked(run, paths.root / "output")


def test_the_right_kernel_passes(paths: Paths) -> None:
    assert search(paths, KERNEL) == ""


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_kernel_that_is_wrong_for_one_kind(kind: str, paths: Paths) -> None:
    old, new, expected = NUMBERS[kind]
    assert old in KERNEL
    message = search(paths, KERNEL.replace(old, new, 1))
    assert re.search(expected, message, re.DOTALL), message
    assert "Keep it as a case with: python -m opmatrix adopt-case each found_" in message


@pytest.mark.parametrize("kind", STRIDES)
def test_a_binding_that_is_wrong_for_one_layout(kind: str, paths: Paths) -> None:
    stable = paths.native / "binding/stable"
    with (
        edited(stable / "torch.h", COPIES, COPIES + WRONG_COPY.replace("{condition}", STRIDES[kind])),
        edited(stable / "torch_shims.h", SHIM, SHIM + SHIM.replace("sizes", "strides")),
    ):
        message = search(paths, KERNEL)
    assert f'layout="{kind}"' in message, message
