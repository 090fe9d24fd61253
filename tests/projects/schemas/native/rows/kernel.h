// y = x * weight * factor, plus or minus other where it is given.
#pragma once

#include "opmatrix/tensor_view.h"

namespace opmatrix::rows {

inline void rows(TensorView<const double> x, TensorView<const double> weight, OptionalView<const double> other,
                 bool is_signed, float factor, TensorView<double> y) {
  for (std::int64_t n = 0; n < y.numel(); ++n) {
    const double added = other ? (is_signed ? -other->data[n] : other->data[n]) : 0.0;
    y.data[n] = x.data[n] * weight.data[n] * double{factor} + added;
  }
}

}  // namespace opmatrix::rows
