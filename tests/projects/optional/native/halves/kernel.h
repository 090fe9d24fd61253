// half = floor(x / 2), rest = x - 2 * half.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::halves {

inline void halves(TensorView<const std::int64_t> x, OptionalView<std::int64_t> rest, TensorView<std::int64_t> half) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t left = x.data[i] & 1;
    if (rest) rest->data[i] = left;
    half.data[i] = x.data[i] / 2 - (x.data[i] < 0 ? left : 0);
  }
}

}  // namespace opmatrix::halves
