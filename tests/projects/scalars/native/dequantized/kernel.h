// y = scale * (x - zero_point), which has the size of x.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::dequantized {

template <typename Q>
void dequantized(TensorView<const Q> x, float scale, std::int64_t zero_point, TensorView<float> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data[i] = static_cast<float>(x.data[i] - zero_point) * scale;
}

}  // namespace opmatrix::dequantized
