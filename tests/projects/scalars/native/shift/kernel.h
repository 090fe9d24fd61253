// y[i] = x[i] + alpha * other, modulo 2^64. y has the size of x.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::shift {

inline void shift(TensorView<const std::int64_t> x, std::int64_t other, std::int64_t alpha,
                  TensorView<std::int64_t> y) {
  const std::uint64_t added = std::uint64_t(alpha) * std::uint64_t(other);
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data[i] = std::int64_t(std::uint64_t(x.data[i]) + added);
}

}  // namespace opmatrix::shift
