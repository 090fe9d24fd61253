"""Two tensors, each scaled and less the other: cst::dual_residual in torch, rknn_cst::cstDualResidual in ONNX.

The kernel is a string here, instead of a file native/dual_residual/kernel.h.
"""

from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

KERNEL = """\
// Each of two tensors of one shape, scaled, less the other.
//
//   x_residual[i] = alpha * x[i] - y[i]      y_residual[i] = alpha * y[i] - x[i]
//
// Shapes   All equal, of any rank; no element is no work.
// Numbers  Computed in T. Where T has two bytes, so that the difference is rounded once and then to T: in float where
//          the processor multiplies and subtracts with one rounding, from x86-64-v3 on, else in double.
// NaN      NaN and infinities go through as IEEE 754 has it.
// Aliasing No output overlaps an input.
#pragma once

#include <cstdint>
#include <type_traits>

#include "opmatrix/parallel.h"
#include "opmatrix/simd.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::dual_residual {

template <typename T>
void dual_residual(TensorView<const T> x, TensorView<const T> y, float alpha, TensorView<T> x_residual,
                   TensorView<T> y_residual) {
  using Half = std::conditional_t<(simd::kBytes > 16), float, double>;
  using Wide = std::conditional_t<sizeof(T) == 2, Half, T>;
  constexpr int kLanes = simd::kLanes<Wide>;
  const Wide factor = static_cast<Wide>(alpha);
  parallel_for(0, x.numel(), 16384, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t whole = begin + (end - begin) / kLanes * kLanes;
    const T* const from_x = x.data;  // in registers: a compiler cannot know that no store changes the views
    const T* const from_y = y.data;
    T* const to_x = x_residual.data;
    T* const to_y = y_residual.data;
    for (std::int64_t i = begin; i < whole; i += kLanes) {
      const auto a = simd::load<Wide>(from_x + i);
      const auto b = simd::load<Wide>(from_y + i);
      simd::store(to_x + i, factor * a - b);
      simd::store(to_y + i, factor * b - a);
    }
    for (std::int64_t i = whole; i < end; ++i) {
      const Wide a = x.data[i];
      const Wide b = y.data[i];
      x_residual.data[i] = static_cast<T>(factor * a - b);
      y_residual.data[i] = static_cast<T>(factor * b - a);
    }
  });
}

}  // namespace opmatrix::dual_residual
"""

SPEC = OpSpec(
    name="dual_residual",
    summary="Scale each of two tensors and subtract the other.",
    torch=TorchOp(name="cst::dual_residual"),
    onnx=OnnxOp(domain="rknn_cst", op_type="cstDualResidual"),
    types={"T": ("float32", "float64", "float16", "bfloat16")},
    inputs=(
        Input(name="x", type="T", doc="a tensor of any shape"),
        Input(name="y", type="T", same_as="x", doc="a tensor of the same shape"),
    ),
    attributes=(Attribute(name="alpha", kind="float", doc="the factor of both"),),
    outputs=(
        Output(name="x_residual", type="T", shape=SameAs(input="x"), doc="alpha * x - y"),
        Output(name="y_residual", type="T", shape=SameAs(input="y"), doc="alpha * y - x"),
    ),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-6, atol=1e-6),
            "float64": Tolerance(rtol=1e-14, atol=1e-14),
            "float16": Tolerance(rtol=2.0**-10, atol=2.0**-24),
            "bfloat16": Tolerance(rtol=2.0**-7, atol=2.0**-133),
        },
    },
    min_opset=12,
    cpu_levels=True,
    elementwise=True,
    kernel=KERNEL,
)
