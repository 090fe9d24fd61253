// What ops/unshuffle/reference.py computes. The binding has checked every size.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::unshuffle {

inline std::uint64_t sum(TensorView<const std::int64_t> values) {
  std::uint64_t found = 0;  // unsigned, because it may wrap around
  for (std::int64_t i = 0; i < values.numel(); ++i) found += static_cast<std::uint64_t>(values.data[i]);
  return found;
}

inline void unshuffle(TensorView<const std::int64_t> x, TensorView<const std::int64_t> factors,
                      OptionalView<const std::int64_t> values, OptionalView<const std::int64_t> edges, std::int64_t r,
                      std::int64_t /*count*/, TensorView<std::int64_t> y) {
  const std::uint64_t factor = sum(factors);
  std::uint64_t more = values ? sum(*values) : 0;
  if (edges) more += values ? static_cast<std::uint64_t>(edges->data[values->size(0)]) : sum(*edges);
  const std::int64_t height = y.size(2), width = y.size(3), blocks = r * r;
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    const std::int64_t column = i % width, row = i / width % height, map = i / width / height;
    const std::int64_t within = map % blocks, channel = map / blocks;
    const std::int64_t from = (channel * height * r + row * r + within / r) * width * r + column * r + within % r;
    y.data[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(x.data[from]) * factor + more);
  }
}

}  // namespace opmatrix::unshuffle
