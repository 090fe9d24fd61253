// y[i] = x[i] + amount * r[i], with r[i] from -1 to 1 by std::mt19937; without a seed y = x.
#pragma once

#include <cstdint>
#include <optional>
#include <random>

#include "opmatrix/tensor_view.h"

namespace opmatrix::jitter {

inline void jitter(TensorView<const double> x, float amount, std::optional<std::int64_t> seed, TensorView<double> y) {
  std::mt19937 twister(std::uint32_t(seed.value_or(0)));
  for (std::int64_t i = 0; i < x.numel(); ++i)
    y.data[i] = seed ? x.data[i] + double(amount) * (double(twister()) * 0x1p-31 - 1.0) : x.data[i];
}

}  // namespace opmatrix::jitter
