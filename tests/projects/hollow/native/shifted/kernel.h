#pragma once

#include "opmatrix/tensor_view.h"

#include <cstdint>

namespace opmatrix::shifted {

template <typename T>
void shifted(TensorView<const T> x, TensorView<const bool> mask, OptionalView<const T> bias, float factor,
             TensorView<T> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    y.data[i] = (mask.data[i] ? x.data[i] * T(factor) : x.data[i]) + (bias ? bias->data[i] : T(0));
  }
}

}  // namespace opmatrix::shifted
