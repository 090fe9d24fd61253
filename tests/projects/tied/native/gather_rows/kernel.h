// Copies rows of x. The binding has checked that index is in [0, N).
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::gather_rows {

template <typename T>
void gather_rows(TensorView<const T> x, TensorView<const std::int64_t> index, TensorView<T> y) {
  const std::int64_t columns = x.size(1);
  for (std::int64_t row = 0; row < index.numel(); ++row) {
    const T* const from = x.data + index.data[row] * columns;
    for (std::int64_t i = 0; i < columns; ++i) y.data[row * columns + i] = from[i];
  }
}

}  // namespace opmatrix::gather_rows
