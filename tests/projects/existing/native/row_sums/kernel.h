// y[i] is the sum of row i of x.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"
#include "total.h"

namespace opmatrix::row_sums {

inline void row_sums(TensorView<const double> x, TensorView<double> y) {
  const std::int64_t width = x.size(1);
  for (std::int64_t i = 0; i < x.size(0); ++i) y.data[i] = total(x.data + i * width, x.data + (i + 1) * width);
}

}  // namespace opmatrix::row_sums
