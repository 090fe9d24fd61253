// Copies the rows of x, and raises an error unless `order` is a permutation of them.
#pragma once

#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::permute_rows {

inline void permute_rows(TensorView<const float> x, TensorView<const std::int32_t> order, TensorView<float> y) {
  const std::int64_t columns = x.size(1);
  std::vector<char> seen(static_cast<std::size_t>(x.size(0)));
  for (std::int64_t row = 0; row < order.numel(); ++row) {
    const std::int32_t from = order.data[row];
    KERNEL_CHECK(from >= 0 && from < x.size(0) && seen[static_cast<std::size_t>(from)] == 0,
                 "permute_rows: order must be a permutation, got ", from, " at (", row, ",)");
    seen[static_cast<std::size_t>(from)] = 1;
    for (std::int64_t i = 0; i < columns; ++i) y.data[row * columns + i] = x.data[from * columns + i];
  }
}

}  // namespace opmatrix::permute_rows
