// q = w * factor - offset, saturated to four bits; real = the same in quarters; code = its low four bits, inverted.
#pragma once

#include <algorithm>
#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::requantize {

inline void requantize(TensorView<const std::int8_t> w, OptionalView<const std::uint8_t> offset, std::int64_t factor,
                       TensorView<std::int8_t> q, TensorView<float> real, TensorView<std::uint8_t> code) {
  const std::int64_t columns = w.size(1);
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    const std::int64_t less = offset ? offset->data[i / columns] : 0;
    const std::int64_t total = w.data[i] * factor - less;
    q.data[i] = static_cast<std::int8_t>(std::clamp<std::int64_t>(total, -8, 7));
    real.data[i] = static_cast<float>(static_cast<double>(total) / 4);
    code.data[i] = static_cast<std::uint8_t>(~total & 15);
  }
}

}  // namespace opmatrix::requantize
