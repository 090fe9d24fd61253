// sums[k][i] = x[i] + numbers[k], modulo 2^32.
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::add_each {

inline void add_each(TensorView<const std::int32_t> x, List<std::int64_t> numbers,
                     List<TensorView<std::int32_t>> sums) {
  for (std::int64_t k = 0; k < numbers.size(); ++k) {
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      sums[k].data[i] =
          static_cast<std::int32_t>(static_cast<std::uint32_t>(x.data[i]) + static_cast<std::uint32_t>(numbers[k]));
    }
  }
}

}  // namespace opmatrix::add_each
