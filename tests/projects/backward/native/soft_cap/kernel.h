// Soft capping: y[n][c] = cap * tanh((x[n][c] * scale[c] + shift[c]) / cap). Without a shift, shift[c] is 0.
#pragma once

#include <cmath>
#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::soft_cap {

template <typename T>
void soft_cap(TensorView<const T> x, TensorView<const T> scale, OptionalView<const T> shift, float cap,
              TensorView<T> y) {
  const std::int64_t columns = x.size(1);
  const double limit = static_cast<double>(cap);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t c = i % columns;
    double bent = static_cast<double>(x.data[i]) * static_cast<double>(scale.data[c]);
    if (shift) bent += static_cast<double>(shift->data[c]);
    y.data[i] = static_cast<T>(limit * std::tanh(bent / limit));
  }
}

}  // namespace opmatrix::soft_cap
