// Changes numbers by each attribute that is there: tests/projects/absent/ops/maybe/reference.py.
#pragma once

#include <cstdint>
#include <optional>

#include "opmatrix/list.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::maybe {

inline void maybe(TensorView<const float> x, float factor, std::optional<float> shift,
                  std::optional<std::int64_t> times, std::optional<bool> negate, std::optional<const char*> mode,
                  std::optional<List<float>> weights, std::optional<List<std::int64_t>> steps,
                  std::optional<std::int64_t> more, TensorView<float> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    float value = x.data[i] * factor;
    if (shift) value += *shift + 1;
    if (times) value = value * static_cast<float>(*times) + 2;
    if (negate) value = *negate ? -value : value + 3;
    if (mode) value = equal(*mode, "none") ? value + 4 : equal(*mode, "double") ? 2 * value : value / 2;
    if (weights) {
      float sum = 0;
      for (const float weight : *weights) sum += weight;
      value += sum + 5 + static_cast<float>(weights->size());
    }
    if (steps) {
      for (const std::int64_t step : *steps) value += static_cast<float>(step);
      value += static_cast<float>(6 + steps->size());
    }
    if (more) value += static_cast<float>(*more + 8);
    y.data[i] = value;
  }
}

}  // namespace opmatrix::maybe
