// The gradient of soft capping. With bent = grad_y * (1 - (y / cap)^2), for each element: grad_x = bent * scale, and
// grad_scale and grad_shift are sums over the rows, of bent * x and of bent.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::soft_cap_backward {

template <typename T>
void soft_cap_backward(TensorView<const T> grad_y, TensorView<const T> x, TensorView<const T> scale,
                       TensorView<const T> y, float cap, TensorView<T> grad_x, TensorView<T> grad_scale,
                       TensorView<T> grad_shift) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  for (std::int64_t c = 0; c < columns; ++c) {
    double of_scale = 0, of_shift = 0;
    for (std::int64_t i = c; i < rows * columns; i += columns) {
      const double tanh = static_cast<double>(y.data[i]) / static_cast<double>(cap);
      const double bent = static_cast<double>(grad_y.data[i]) * (1 - tanh * tanh);
      grad_x.data[i] = static_cast<T>(bent * static_cast<double>(scale.data[c]));
      of_scale += bent * static_cast<double>(x.data[i]);
      of_shift += bent;
    }
    grad_scale.data[c] = static_cast<T>(of_scale);
    grad_shift.data[c] = static_cast<T>(of_shift);
  }
}

}  // namespace opmatrix::soft_cap_backward
