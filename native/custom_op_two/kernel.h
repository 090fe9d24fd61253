// Each number rounded to the nearest whole one, and halfway between two of them to the even one.
//
//   y[i] = round(x[i])      2.5 -> 2, 3.5 -> 4, -0.5 -> -0.0
//
// Shapes   Equal, of any rank; no element is no work.
// NaN      NaN, infinities and signed zeros stay what they are; integers, too.
// Aliasing y does not overlap x.
#pragma once

#include <cstdint>

#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::custom_op_two {

// Adding and subtracting 2^(digits - 1) drops the digits after the point, rounded as IEEE 754 rounds by default. It
// is a vector operation on every x86-64, which rint of the C library is not. Numbers that large are whole; NaN is not
// less.
inline float rounded(float x) {
  const float size = __builtin_fabsf(x);
  return size < 0x1p23F ? __builtin_copysignf(size + 0x1p23F - 0x1p23F, x) : x;
}
inline double rounded(double x) {
  const double size = __builtin_fabs(x);
  return size < 0x1p52 ? __builtin_copysign(size + 0x1p52 - 0x1p52, x) : x;
}
inline std::int64_t rounded(std::int64_t x) {
  return x;
}

template <typename T>
void custom_op_two(TensorView<const T> x, TensorView<T> y) {
  parallel_for(0, x.numel(), 32768, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y.data[i] = rounded(x.data[i]);
  });
}

}  // namespace opmatrix::custom_op_two
