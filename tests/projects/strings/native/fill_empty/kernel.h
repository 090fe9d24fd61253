// Replaces what equals T(): an empty string, or 0.
#pragma once

#include "opmatrix/tensor_view.h"

namespace opmatrix::fill_empty {

template <typename T>
void fill_empty(TensorView<const T> x, TensorView<const T> other, TensorView<T> y, TensorView<bool> replaced,
                OptionalView<T> others) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    replaced.data[i] = x.data[i] == T();
    y.data[i] = replaced.data[i] ? other.data[0] : x.data[i];
    if (others) others->data[i] = replaced.data[i] ? T() : other.data[0];
  }
}

}  // namespace opmatrix::fill_empty
