// y = x, halved and increased by one 200 times. benchmarks/alarms.py and tests/addons/bench/test_run.py plant more passes.
#pragma once

#include <cstdint>

#include "opmatrix/tensor_view.h"

namespace opmatrix::passes {

inline void passes(TensorView<const float> x, TensorView<float> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    float value = x.data[i];
    for (int pass = 0; pass < 200; ++pass) value = value * 0.5F + 1.0F;
    y.data[i] = value;
  }
}

}  // namespace opmatrix::passes
