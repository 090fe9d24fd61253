// y[n, c, ...] = (x[n, c, ...] - mean) / sqrt(variance + epsilon) * scale[c] + bias[c], with the moments of the group of
// c in sample n. num_groups holds a whole number that divides C. x and y are contiguous and do not overlap.
#pragma once

#include <cstdint>

#include "opmatrix/check.h"
#include "opmatrix/math.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::group_norm {

inline void group_norm(TensorView<const float> x, TensorView<const float> num_groups, TensorView<const float> scale,
                       TensorView<const float> bias, float epsilon, TensorView<float> y) {
  const float asked = num_groups.data[0];
  KERNEL_CHECK(asked >= 1 && asked <= static_cast<float>(x.size(1)) && asked == floor(asked) &&
                   x.size(1) % static_cast<std::int64_t>(asked) == 0,
               "group_norm: num_groups must be a whole number that divides ", x.size(1), ", got ", asked);
  const auto groups = static_cast<std::int64_t>(asked);
  const std::int64_t pixels = numel(x.sizes, 2);
  const std::int64_t count = x.size(1) / groups * pixels;
  for (std::int64_t first = 0; first < x.numel(); first += count) {
    double mean = 0;
    for (std::int64_t i = first; i < first + count; ++i) mean += x.data[i];
    mean /= static_cast<double>(count);
    double variance = 0;
    for (std::int64_t i = first; i < first + count; ++i) variance += (x.data[i] - mean) * (x.data[i] - mean);
    const double rate = 1 / sqrt(variance / static_cast<double>(count) + static_cast<double>(epsilon));
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t c = i / pixels % x.size(1);
      y.data[i] = static_cast<float>((x.data[i] - mean) * rate * scale.data[c] + bias.data[c]);
    }
  }
}

}  // namespace opmatrix::group_norm
