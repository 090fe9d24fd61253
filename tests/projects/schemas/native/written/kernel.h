// sums[i, j]: the sum of a window of x * weight, times factor, plus the start and the offset; flipped. above: the count
// of values above level along an axis.
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::written {

template <typename T>
void written(TensorView<const T> x, TensorView<const T> weight, OptionalView<const bool> mask,
             OptionalView<const T> offset, List<std::int64_t> window, List<std::int64_t> stride, float factor,
             float level, const char* start, List<std::int64_t> flips, std::int64_t axis, TensorView<T> sums,
             TensorView<std::int64_t> above) {
  const std::int64_t rows = x.sizes[0], columns = x.sizes[1], height = sums.sizes[0], width = sums.sizes[1];
  const double constant = (equal(start, "one") ? 1.0 : 0.0) + (offset ? double{offset->data[0]} : 0.0);
  for (std::int64_t i = 0; i < height; ++i) {
    for (std::int64_t j = 0; j < width; ++j) {
      double sum = 0.0;
      for (std::int64_t k = 0; k < window[0]; ++k) {
        for (std::int64_t l = 0; l < window[1]; ++l) {
          const std::int64_t column = j * stride[1] + l, at = (i * stride[0] + k) * columns + column;
          if (!mask || mask->data[at]) sum += double{x.data[at] * weight.data[column]};
        }
      }
      const std::int64_t to = (flips[0] ? height - 1 - i : i) * width + (flips[1] ? width - 1 - j : j);
      sums.data[to] = static_cast<T>(sum * double{factor} + constant);
    }
  }
  const bool by_rows = axis == 0 || axis == -2;
  for (std::int64_t n = 0; n < above.numel(); ++n) above.data[n] = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) above.data[by_rows ? j : i] += x.data[i * columns + j] > T{level};
  }
}

}  // namespace opmatrix::written
