// sum = x + y + others, saturated; wrapped = the same modulo the range of T; codes = the low four bits of x, inverted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "opmatrix/int4.h"
#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::add_saturated {

template <typename T>
void add_saturated(TensorView<const T> x, OptionalView<const T> y, List<TensorView<const T>> others, TensorView<T> sum,
                   OptionalView<T> wrapped, TensorView<UInt4> codes) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    int total = x.data[i];
    if (y) total += y->data[i];
    for (const TensorView<const T>& other : others) total += other.data[i];
    sum.data[i] =
        static_cast<T>(std::clamp<int>(total, std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()));
    if (wrapped) wrapped->data[i] = static_cast<T>(total);
    codes.data[i] = static_cast<UInt4>(~static_cast<int>(x.data[i]));
  }
}

}  // namespace opmatrix::add_saturated
