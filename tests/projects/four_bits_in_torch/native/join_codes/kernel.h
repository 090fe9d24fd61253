// picked = the numbers of table at all indices, without those that are 0.
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::join_codes {

inline void join_codes(TensorView<const std::int8_t> table, List<TensorView<const std::uint8_t>> indices,
                       NewTensor<std::int8_t> picked) {
  std::int64_t count = 0;
  for (const auto& index : indices) {
    for (std::int64_t i = 0; i < index.numel(); ++i) count += table.data[index.data[i]] != 0 ? 1 : 0;
  }
  const TensorView<std::int8_t> made = picked.make({&count, 1});
  std::int64_t at = 0;
  for (const auto& index : indices) {
    for (std::int64_t i = 0; i < index.numel(); ++i) {
      if (table.data[index.data[i]] != 0) made.data[at++] = table.data[index.data[i]];
    }
  }
}

}  // namespace opmatrix::join_codes
