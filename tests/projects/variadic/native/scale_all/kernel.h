// ys[k][i] = scale * xs[k][i]; each ys[k] has the shape of xs[k].
#pragma once

#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::scale_all {

template <typename T>
void scale_all(List<TensorView<const T>> xs, float scale, List<TensorView<T>> ys) {
  for (std::int64_t k = 0; k < xs.size(); ++k) {
    for (std::int64_t i = 0; i < xs[k].numel(); ++i) ys[k].data[i] = static_cast<T>(scale) * xs[k].data[i];
  }
}

}  // namespace opmatrix::scale_all
