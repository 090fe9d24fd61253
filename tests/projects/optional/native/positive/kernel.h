// y = max(x, 0), 0 for NaN; places: the flat indices of what is positive; mask: whether it is; rest: what is not.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::positive {

template <typename T>
void positive(TensorView<const T> x, bool return_mask, TensorView<T> y, NewTensor<std::int64_t> places,
              OptionalView<bool> mask, OptionalView<T> rest) {
  (void)return_mask;  // mask says it
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const bool kept = x.data[i] > T(0);
    y.data[i] = kept ? x.data[i] : T(0);
    if (mask) mask->data[i] = kept;
    if (rest) rest->data[i] = kept ? T(0) : x.data[i];
    count += kept ? 1 : 0;
  }
  if (!places.wanted()) return;
  const TensorView<std::int64_t> found = places.make({&count, 1});
  std::int64_t next = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    if (x.data[i] > T(0)) found.data[next++] = i;
  }
}

}  // namespace opmatrix::positive
