#pragma once

#include "opmatrix/tensor_view.h"

namespace opmatrix::axpy {

/// z[i] = x[i] + alpha * y[i]
template <typename T>
void axpy(TensorView<const T> x, TensorView<const T> y, float alpha, TensorView<T> z) {
  for (std::int64_t i = 0; i < x.numel(); ++i) z.data[i] = x.data[i] + T(alpha) * y.data[i];
}

}  // namespace opmatrix::axpy
