// Sums the rows of each bag, which the binding has checked: offsets ascend from 0 to the number of rows.
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::bag_sums {

inline void bag_sums(TensorView<const double> x, TensorView<const std::int32_t> offsets,
                     OptionalView<const double> weight, List<TensorView<const std::uint8_t>> codes, float /*limit*/,
                     TensorView<double> y) {
  const std::int64_t columns = x.size(1);
  for (std::int64_t bag = 0; bag < offsets.numel(); ++bag) {
    const std::int64_t end = bag + 1 < offsets.numel() ? offsets.data[bag + 1] : x.size(0);
    for (std::int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (std::int64_t row = offsets.data[bag]; row < end; ++row) {
        sum += x.data[row * columns + column] * (weight ? weight->data[row] : 1.0);
      }
      for (const auto& code : codes) sum += code.data[bag];
      y.data[bag * columns + column] = sum;
    }
  }
}

}  // namespace opmatrix::bag_sums
