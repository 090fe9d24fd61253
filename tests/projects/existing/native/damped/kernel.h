// y[i] = x[i] * factor where x[i] is below zero, else x[i]; NaN propagates. x and y have equal size.
#pragma once

#include <cstdint>

#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::damped {

inline void damped(TensorView<const float> x, float factor, TensorView<float> y) {
  KERNEL_CHECK(x.numel() == y.numel(), "damped: x and y differ in size");
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data[i] = x.data[i] < 0 ? x.data[i] * factor : x.data[i];
}

}  // namespace opmatrix::damped
