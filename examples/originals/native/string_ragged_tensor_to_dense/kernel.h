// Writes rows of strings of several lengths, which lie one behind the other, as rows of a matrix.
//
// Shapes   values (V,), indices and default_value (N + 1,), dense (N, M) with M the length of the longest row.
// Values   indices ascend, from 0 to V. Behind the end of a shorter row are empty strings.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "opmatrix/tensor_view.h"

namespace opmatrix::string_ragged_tensor_to_dense {

inline void string_ragged_tensor_to_dense(TensorView<const std::int64_t> /*unused*/,
                                          TensorView<const std::string> values, TensorView<const std::int64_t> indices,
                                          TensorView<const std::string> /*default_value*/,
                                          NewTensor<std::string> dense) {
  const std::int64_t rows = indices.numel() - 1;
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < rows; ++i) longest = std::max(longest, indices.data[i + 1] - indices.data[i]);
  const std::int64_t sizes[] = {rows, longest};
  std::string* row = dense.make({sizes, 2}).data;
  for (std::int64_t i = 0; i < rows; ++i, row += longest) {
    std::copy(values.data + indices.data[i], values.data + indices.data[i + 1], row);
  }
}

}  // namespace opmatrix::string_ragged_tensor_to_dense
