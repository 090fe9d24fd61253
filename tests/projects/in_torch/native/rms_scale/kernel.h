// Root-mean-square normalization: y[n][c] = x[n][c] / sqrt(mean of x[n][c]^2 + eps) * weight[c]. Without a weight,
// weight[c] is 1.
#pragma once

#include <cstdint>

#include "opmatrix/math.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::rms_scale {

template <typename T>
void rms_scale(TensorView<const T> x, OptionalView<const T> weight, float eps, TensorView<T> y) {
  const std::int64_t columns = x.size(1);
  for (std::int64_t row = 0; row < x.size(0); ++row) {
    const T* from = x.data + row * columns;
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += static_cast<double>(from[c]) * static_cast<double>(from[c]);
    const double scale = 1 / sqrt(sum / static_cast<double>(columns) + static_cast<double>(eps));
    for (std::int64_t c = 0; c < columns; ++c) {
      const double scaled = static_cast<double>(from[c]) * scale;
      y.data[row * columns + c] = static_cast<T>(weight ? scaled * static_cast<double>(weight->data[c]) : scaled);
    }
  }
}

}  // namespace opmatrix::rms_scale
