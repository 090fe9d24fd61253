// picked = the numbers of table at index that are not 0; taken = their indices.
#pragma once

#include <cstdint>

#include "opmatrix/int4.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::pick_codes {

inline void pick_codes(TensorView<const Int4> table, TensorView<const UInt4> index, NewTensor<Int4> picked,
                       NewTensor<UInt4> taken) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < index.numel(); ++i) count += table.data[index.data[i]] != 0 ? 1 : 0;
  const TensorView<Int4> numbers = picked.make({&count, 1});
  const TensorView<UInt4> places = taken.make({&count, 1});
  for (std::int64_t i = 0, at = 0; i < index.numel(); ++i) {
    if (table.data[index.data[i]] == 0) continue;
    numbers.data[at] = table.data[index.data[i]];
    places.data[at++] = index.data[i];
  }
}

}  // namespace opmatrix::pick_codes
