// y[..., i] = x[..., index[..., i]] * weight[i, ...]. The binding has checked sizes and indices.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::batched_take {

inline void batched_take(TensorView<const float> x, TensorView<const std::int64_t> index,
                         OptionalView<const float> weight, TensorView<float> y) {
  const std::int64_t size = x.size(x.rank() - 1), count = y.size(y.rank() - 1);
  if (y.numel() == 0) return;
  const std::int64_t rows = y.numel() / count;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const float value = x.data[i / count * size + index.data[i]];
    y.data[i] = weight ? value * weight->data[i % count * rows + i / count] : value;
  }
}

}  // namespace opmatrix::batched_take
