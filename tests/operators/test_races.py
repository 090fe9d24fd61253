"""ThreadSanitizer finds races in kernels, with the line of the kernel, and none in kernels without them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from opmatrix.basics.errors import SanitizeError
from opmatrix.codegen import write_code
from opmatrix.declaration.load import Operator
from opmatrix.ort_checks import races
from opmatrix.project.paths import Paths
from opmatrix.search import drawn
from opmatrix.spec import Attribute, Case, Model, Random, Tolerance, Values
from tests.support.projects import ROOT, with_reference
from tests.support.specs import FLOATS, attribute, declare, outputs

pytestmark = [pytest.mark.compile, pytest.mark.slow]

EXACT = {"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}}
KERNEL = """\
#pragma once
#include <cstdint>
#include <vector>
#include "opmatrix/check.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::twice {
template <typename T>
void twice(TensorView<const T> x, TensorView<T> y) {
  KERNEL_CHECK(x.rank() < 5, "twice: x has ", x.rank(), " axes");
  parallel_for(0, x.numel(), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y.data[i] = x.data[i] + x.data[i];
  });
  // after
}
}  // namespace opmatrix::twice
"""


def sized(name: str, *shape: int) -> Case:
    return Case(name=name, inputs={"x": Random(shape=shape)})


def operator(kernel: str, may_inplace: str | None = None) -> Operator:
    spec = declare(
        "twice(x: T[...])",
        *outputs("y: T like x", may_inplace=may_inplace),
        summary="Twice the input.",
        types=FLOATS,
        tolerances=EXACT,
        kernel=kernel,
    )
    cases = (sized("plain", 2, 3), sized("scalar"), sized("empty", 0, 3), sized("large", 100, 30))
    types = ("float32", "float64")
    return Operator(spec=spec, models=tuple(Model(name=t, types={"T": t}, cases=cases) for t in types))


@pytest.fixture
def tried(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return a function from a kernel to the record of the stage."""
    paths = with_reference(tmp_path, "twice", "def twice(x): return x + x")
    shutil.copytree(ROOT / "native", paths.native)

    def tried(kernel: str, *, may_inplace: str | None = None) -> dict[str, str]:
        return sanitized(paths, operator(kernel, may_inplace))

    return tried


def sanitized(paths: Paths, of: Operator) -> dict[str, str]:
    write_code.run(paths, of)
    drawn.write(paths.drawn_inputs(of.name), [])
    races.run(paths, of)
    found: dict[str, str] = json.loads(paths.races_record(of.name).read_text())
    return found


def test_a_kernel_without_a_race(tried: Callable[[str], dict[str, str]]) -> None:
    """The calls that split their work are counted: of others nothing is known about the kernel's own threads."""
    detail = "10 calls in 4 threads, 4 of them split by parallel_for"
    assert tried(KERNEL) == {"outcome": "verified", "detail": detail}


def test_a_result_that_depends_on_other_calls(tried: Callable[[str], dict[str, str]]) -> None:
    """ThreadSanitizer sees no race between atomic operations; the outputs differ all the same."""
    line = "static std::atomic<int> runs{0}; if (x.numel() == 6) y.data[0] = ++runs;"
    with pytest.raises(SanitizeError, match="twice-plain: output 'y' differs at element 0: 5 alone, ") as caught:
        tried(KERNEL.replace("<vector>", "<atomic>").replace("// after", line))
    assert "while 4 threads call the kernel" in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (KERNEL, ""),
        (KERNEL.replace("+ x.data[i]", "+ (i > 0 ? x.data[i - 1] : T(0))"), "in 4 threads|while 4 threads call"),
    ],
    ids=["right", "reads the element before"],
)
def test_an_output_in_the_memory_of_an_input(kernel: str, message: str, tried: Callable[..., dict[str, str]]) -> None:
    assert tried(kernel, may_inplace=None)["outcome"] == "verified"
    if not message:
        assert tried(kernel, may_inplace="x")["outcome"] == "verified"
        return
    with pytest.raises(SanitizeError, match=message):
        tried(kernel, may_inplace="x")


def test_a_call_that_the_kernel_refuses_proves_nothing(tried: Callable[[str], dict[str, str]]) -> None:
    with pytest.raises(SanitizeError, match="rejects what the reference computes: 'twice: x has 2 axes'"):
        tried(KERNEL.replace("rank() < 5", "rank() < 2"))


MIXED = """\
#pragma once
#include <cstdint>
#include "opmatrix/check.h"
#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::mixed {
// Each argument has the values that the test gives: what the program reads is what Python wrote.
template <typename T>
void mixed(TensorView<const T> x, OptionalView<const std::int64_t> index, List<TensorView<const bool>> more, float a,
           std::int64_t b, bool c, const char* d, List<float> e, List<std::int64_t> f, List<bool> g, NewTensor<T> taken,
           TensorView<std::int64_t> count) {
  if (!index) {
    KERNEL_CHECK(more.size() == 0, "mixed: more");
  } else {
    KERNEL_CHECK(index->data[0] == -2 && more.size() == 2 && more[1].data[0] && more[0].rank() == 2, "mixed: inputs");
  }
  KERNEL_CHECK(a == 0.1f && b == (std::int64_t(1) << 40) && c && equal(d, "text"), "mixed: scalars");
  KERNEL_CHECK(e.size() == 2 && e[1] == 2.5f && f.size() == 1 && f[0] == -3 && g.size() == 2 && g[0] && !g[1], "lists");
  const std::int64_t sizes[] = {x.numel() / 2};
  const auto made = taken.make({sizes, 1});
  for (std::int64_t i = 0; i < made.numel(); ++i) made.data[i] = x.data[i];
  count.data[0] = x.size(0);
}
}  // namespace opmatrix::mixed
"""


def test_every_kind_of_argument(tmp_path: Path) -> None:
    """The kernel rejects arguments that differ from those of the case."""
    spec = declare(
        "mixed(x: T[N, ...], index: int64?, more: bool*, a=0.1) -> taken: T[?], count: int64[1]",
        Attribute(name="b", kind="int", default=1 << 40),
        attribute("c=True"),
        attribute("d='text'"),
        Attribute(name="e", kind="floats", default=(math.inf, 2.5)),
        attribute("f=(-3,)"),
        attribute("g=(True, False)"),
        summary="Takes each kind of argument.",
        types={"T": ("float32", "int32")},
        tolerances=EXACT,
        kernel=MIXED,
    )
    index = Random(shape=(2,), specials={0: -2})
    more = (Random(shape=(1, 2)), Values(values=(True,)))
    cases = (Case(name="all", inputs={"x": Random(shape=(4, 3)), "index": index, "more": more}),)
    alone = (Case(name="one", inputs={"x": Random(shape=(5,))}),)
    models = (Model(name="m", types={"T": "int32"}, cases=cases), Model(name="n", types={"T": "float32"}, cases=alone))
    reference = """
import numpy as np
def mixed(x, index, more, *, a, b, c, d, e, f, g):
    return x.ravel()[:x.size // 2], np.array([len(x)])
"""
    paths = with_reference(tmp_path, "mixed", reference)
    shutil.copytree(ROOT / "native", paths.native)
    found = sanitized(paths, Operator(spec=spec, models=models))
    assert found["detail"] == "4 calls in 4 threads, 0 of them split by parallel_for"
