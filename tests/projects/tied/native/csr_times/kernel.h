// Multiplies a sparse matrix by a vector. The binding has checked that offsets ascend from 0 to the number of elements.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::csr_times {

inline void csr_times(TensorView<const double> x, TensorView<const double> elements,
                      TensorView<const std::int64_t> columns, TensorView<const std::int64_t> offsets,
                      TensorView<double> y) {
  for (std::int64_t row = 0; row < y.numel(); ++row) y.data[row] = 0;
  std::int64_t row = 0;
  // The last offset is the number of elements, so no element is behind the last row.
  for (std::int64_t i = offsets.data[0]; i < offsets.data[offsets.numel() - 1]; ++i) {
    while (i >= offsets.data[row + 1]) ++row;
    y.data[row] += elements.data[i] * x.data[columns.data[i]];
  }
}

}  // namespace opmatrix::csr_times
