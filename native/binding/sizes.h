// Sizes of outputs that a declaration computes with a minus, such as "(N - 3) // 2 + 1".
#pragma once

#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix {

/// Rounds down as Python's // does, so that C++ and Python compute the same; `divisor` is greater than 0.
constexpr std::int64_t floor_divide(std::int64_t number, std::int64_t divisor) {
  return number / divisor - (number % divisor < 0 ? 1 : 0);
}

/// Throws unless an output can have these sizes: "op: y would have the shape (-1, 3); its inputs are too small".
inline void check_computed(const char* op, const char* output, Sizes sizes) {
  for (std::int64_t i = 0; i < sizes.rank; ++i) {
    KERNEL_CHECK(sizes[i] >= 0, op, ": ", output, " would have the shape ", sizes, "; its inputs are too small");
  }
}

}  // namespace opmatrix
