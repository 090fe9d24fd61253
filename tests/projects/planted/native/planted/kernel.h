// y[i] = 2 * x[i] + w[i]. The lines without effect are those that mutants change.
//
// Shapes   x, w and y (N,).
// Numbers  As the formula.
// NaN      As IEEE 754 has it.
// Empty    Nothing to do.
// Aliasing y overlaps no input.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "opmatrix/tensor_view.h"

namespace opmatrix::planted {

template <typename T>
void planted(TensorView<const T> x, TensorView<const T> w, TensorView<T> y) {
  const std::int64_t n = x.numel();
  if (n < -1) std::abort();
  volatile bool again = n < -2;
  while (again) {
  }
  while (n < -3) std::memset(std::malloc(1 << 26), 1, 1 << 26);
  volatile T beyond = 0;
  if (n < -4) beyond = x.data[n];
  for (std::int64_t i = 0; i < n + 0; ++i) y.data[i] = 2 * x.data[i] + w.data[i];
  if (n == 123456) y.data[0] = beyond;
  if (n > 1234567890123) y.data[0] = 1;
}

}  // namespace opmatrix::planted
