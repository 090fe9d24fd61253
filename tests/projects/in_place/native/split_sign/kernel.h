#pragma once

#include "opmatrix/tensor_view.h"

namespace opmatrix::split_sign {

/// negative[i] = x[i] where x[i] < 0, positive[i] where it is > 0 or NaN, else 0; called[i] = calls[i] + step.
template <typename T>
void split_sign(TensorView<const T> x, TensorView<const std::int64_t> calls, std::int64_t step, TensorView<T> negative,
                TensorView<std::int64_t> called, TensorView<T> positive) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    negative.data[i] = x.data[i] < T(0) ? x.data[i] : T(0);
    positive.data[i] = x.data[i] <= T(0) ? T(0) : x.data[i];
  }
  for (std::int64_t i = 0; i < calls.numel(); ++i) {
    called.data[i] =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(calls.data[i]) + static_cast<std::uint64_t>(step));
  }
}

}  // namespace opmatrix::split_sign
