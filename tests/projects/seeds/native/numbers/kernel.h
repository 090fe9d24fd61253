// y[i] = number i of SplitMix64 with the given seed. x gives the shape alone.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::numbers {

inline void numbers(TensorView<const float> x, std::int64_t seed, TensorView<std::int64_t> y) {
  std::uint64_t state = std::uint64_t(seed);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    y.data[i] = std::int64_t(z ^ (z >> 31));
  }
}

}  // namespace opmatrix::numbers
