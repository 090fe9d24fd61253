#pragma once

#include <sched.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "opmatrix/check.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::differ {

template <typename T>
void differ(TensorView<const T> x, TensorView<const T> y, TensorView<T> first, TensorView<T> second) {
  // before
  parallel_for(0, x.numel(), 512, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T a = x.data[i], b = y.data[i];
      first.data[i] = a - b;
      second.data[i] = b - a;
    }
    // within
  });
  // after
}

}  // namespace opmatrix::differ
