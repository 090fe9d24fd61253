// A causal depthwise convolution, and the state that lets the next call go on where this one ends.
//
//   sum[b, d, t] = bias[d] + weight[d, 0] * s[t] + ... + weight[d, W - 1] * s[t + W - 1]
//   out = sum, or sum / (1 + exp(-sum)) where activation is "silu" or "swish"
//
// with s = the W - 1 initial states of b and d, zeros where there are none, and the L steps of x behind them.
// final_states are the last W - 1 of s. As Dao-AILab's causal_conv1d 1.6 has it, which does not sum in double.
//
// Shapes   x and out (B, D, L), weight (D, W) with W > 0, bias (D,), initial_states and final_states (B, D, W - 1).
// Numbers  Sums and the exponential are double.
// NaN      As IEEE 754 has it: a sum of -infinity is NaN behind silu; an infinite weight makes NaN of a step that is 0.
// Aliasing No output overlaps an input.
#pragma once

#include <cmath>
#include <cstdint>

#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::causal_conv1d {

template <typename T>
void causal_conv1d(TensorView<const T> x, TensorView<const T> weight, OptionalView<const T> bias,
                   OptionalView<const T> initial_states, const char* activation, TensorView<T> out,
                   TensorView<T> final_states) {
  const std::int64_t channels = x.size(1), steps = x.size(2), width = weight.size(1), before = width - 1;
  const bool silu = !equal(activation, "none");

  const auto convolve = [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t row = first; row < last; ++row) {  // of a sequence and a channel
      const T* const from = x.data + row * steps;
      const T* const state = initial_states ? initial_states->data + row * before : nullptr;
      const T* const factors = weight.data + row % channels * width;
      const auto step = [&](std::int64_t t) {  // s[t]
        return t >= before ? from[t - before] : state ? state[t] : T(0);
      };
      const double summand = bias ? static_cast<double>(bias->data[row % channels]) : 0;
      for (std::int64_t t = 0; t < steps; ++t) {
        double sum = summand;
        for (std::int64_t k = 0; k < width; ++k)
          sum += static_cast<double>(factors[k]) * static_cast<double>(step(t + k));
        out.data[row * steps + t] = static_cast<T>(silu ? sum / (1 + std::exp(-sum)) : sum);
      }
      for (std::int64_t k = 0; k < before; ++k) final_states.data[row * before + k] = step(steps + k);
    }
  };
  constexpr std::int64_t kStepsPerThread = 8192;
  parallel_for(0, x.size(0) * channels, 1 + kStepsPerThread / (steps + 1), convolve);
}

}  // namespace opmatrix::causal_conv1d
