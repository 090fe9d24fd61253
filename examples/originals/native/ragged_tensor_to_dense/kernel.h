// Writes rows of several lengths, which lie one behind the other, as rows of a matrix.
//
// Shapes   values (V,), default_value (1,), indices (N + 1,), dense (N, M) with M the length of the longest row.
// Values   indices ascend, from 0 to V. Behind the end of a shorter row is default_value.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::ragged_tensor_to_dense {

inline void ragged_tensor_to_dense(TensorView<const std::int64_t> /*unused*/, TensorView<const std::int64_t> values,
                                   TensorView<const std::int64_t> default_value, TensorView<const std::int64_t> indices,
                                   std::int64_t /*missing_value*/, NewTensor<std::int64_t> dense) {
  const std::int64_t rows = indices.numel() - 1;
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < rows; ++i) longest = std::max(longest, indices.data[i + 1] - indices.data[i]);
  const std::int64_t sizes[] = {rows, longest};
  std::int64_t* row = dense.make({sizes, 2}).data;
  for (std::int64_t i = 0; i < rows; ++i, row += longest) {
    std::int64_t* const end = std::copy(values.data + indices.data[i], values.data + indices.data[i + 1], row);
    std::fill(end, row + longest, default_value.data[0]);
  }
}

}  // namespace opmatrix::ragged_tensor_to_dense
