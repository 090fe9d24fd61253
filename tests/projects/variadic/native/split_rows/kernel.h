// blocks[k] has the columns k * size to (k + 1) * size of x, where size = C // count; left = C - count * size.
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::split_rows {

template <typename T>
void split_rows(TensorView<const T> x, std::int64_t count, TensorView<std::int64_t> left, List<TensorView<T>> blocks) {
  const std::int64_t columns = x.size(1);
  const std::int64_t size = columns / count;
  left.data[0] = columns - count * size;
  for (std::int64_t k = 0; k < blocks.size(); ++k) {
    for (std::int64_t row = 0; row < x.size(0); ++row) {
      for (std::int64_t i = 0; i < size; ++i) {
        blocks[k].data[row * size + i] = x.data[row * columns + k * size + i];
      }
    }
  }
}

}  // namespace opmatrix::split_rows
