// total[n] = scale * sum over k of weights[k] * x[n, k]; greatest[n] = the greatest x[n, k]; stored = x as bfloat16.
#pragma once

#include <cstdint>
#include <limits>

#include "opmatrix/check.h"
#include "opmatrix/half.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::weighted_sum {

template <typename T>
void weighted_sum(TensorView<const T> x, TensorView<const T> weights, float scale, TensorView<T> total,
                  TensorView<T> greatest, TensorView<BFloat16> stored) {
  const std::int64_t count = x.size(1);
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    const T* const row = x.data + n * count;
    compute_t<T> sum = 0;
    T most = static_cast<T>(-std::numeric_limits<T>::infinity());
    for (std::int64_t k = 0; k < count; ++k) {
      sum += row[k] * weights.data[k];
      if (!(row[k] <= most) && most == most) most = row[k];  // a NaN stays
      stored.data[n * count + k] = static_cast<BFloat16>(row[k]);
    }
    total.data[n] = static_cast<T>(sum * scale);
    greatest.data[n] = most;
  }
}

}  // namespace opmatrix::weighted_sum
