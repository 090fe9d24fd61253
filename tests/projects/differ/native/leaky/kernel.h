// y[i] = x[i] < 0 ? slope * x[i] : x[i], with the other sign where the mode is "odd".
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::leaky {

inline void leaky(TensorView<const float> x, float slope, const char* mode, TensorView<float> y) {
  const bool odd = equal(mode, "odd");
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float value = x.data[i] < 0 ? slope * x.data[i] : x.data[i];
    y.data[i] = odd ? -value : value;
  }
}

}  // namespace opmatrix::leaky
