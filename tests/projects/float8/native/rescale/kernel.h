// y[n, k] = x[n, k] / scale[n]; stored = y as float8_e4m3fn, saturated; greatest[n] = the greatest |x[n, k]|, or NaN.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "opmatrix/float8.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::rescale {

template <typename T>
void rescale(TensorView<const T> x, TensorView<const T> scale, TensorView<T> y, TensorView<Float8E4M3FN> stored,
             TensorView<float> greatest) {
  using Stored = std::numeric_limits<Float8E4M3FN>;
  const std::int64_t count = x.size(1);
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    compute_t<T> most = 0;
    for (std::int64_t k = n * count; k < (n + 1) * count; ++k) {
      const compute_t<T> value = x.data[k];
      const compute_t<T> quotient = value / scale.data[n];
      y.data[k] = static_cast<T>(quotient);
      stored.data[k] = static_cast<Float8E4M3FN>(std::clamp<compute_t<T>>(quotient, Stored::lowest(), Stored::max()));
      if (!(std::abs(value) <= most) && most == most) most = std::abs(value);  // a NaN stays
    }
    greatest.data[n] = most;
  }
}

}  // namespace opmatrix::rescale
