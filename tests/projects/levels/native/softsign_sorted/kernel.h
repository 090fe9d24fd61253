// y = sorted / (1 + |sorted|), where sorted is x in ascending order; x has no NaN, y overlaps no input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::softsign_sorted {

/// A weak symbol, of which a linker keeps one for all levels.
[[gnu::noinline]] inline int calls() {
  static int count = 0;
  return ++count;
}

template <typename T>
void softsign_sorted(TensorView<const T> x, TensorView<T> y) {
  std::vector<T> sorted;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    KERNEL_CHECK(x.data[i] == x.data[i], "softsign_sorted: x must have no NaN, got one at ", i, " in call ", calls());
    sorted.push_back(x.data[i]);
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const T value = sorted[static_cast<std::size_t>(i)];
    y.data[i] = value / (1 + (value < 0 ? -value : value));
  }
}

}  // namespace opmatrix::softsign_sorted
