// y = factor * x + offset, without an offset factor * x. y has the size of x.
#pragma once

#include <cstdint>
#include <optional>

#include "opmatrix/tensor_view.h"

namespace opmatrix::damped {

template <typename T>
void damped(TensorView<const T> x, float factor, std::optional<float> offset, TensorView<T> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data[i] = T(factor) * x.data[i] + T(offset.value_or(0.0f));
}

}  // namespace opmatrix::damped
