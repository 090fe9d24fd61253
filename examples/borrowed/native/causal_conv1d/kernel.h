// A causal depthwise convolution, and the state that lets the next call go on where this one ends.
//
//   sum[b, d, t] = bias[d] + weight[d, 0] * s[t] + ... + weight[d, W - 1] * s[t + W - 1]
//   out = sum, or sum / (1 + exp(-sum)) where activation is "silu" or "swish"
//
// with s = the W - 1 initial states of b and d, zeros where there are none, and the L steps of x behind them.
// final_states are the last W - 1 of s. As Dao-AILab's causal_conv1d 1.6 has it, which does not sum in double.
//
// Shapes   x and out (B, D, L), weight (D, W) with W > 0, bias (D,), initial_states and final_states (B, D, W - 1).
// Numbers  Sums are double, rounded to T; silu is that of the rounded sum, computed in T.
// NaN      As IEEE 754 has it: a sum of -infinity is NaN behind silu; an infinite weight makes NaN of a step that is 0.
// Aliasing No output overlaps an input.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "opmatrix/list.h"
#include "opmatrix/parallel.h"
#include "opmatrix/simd.h"
#include "opmatrix/simd_math.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::causal_conv1d {

/// out[t] = summand + factors[0] * s[t] + ... + factors[width - 1] * s[t + width - 1] for t in [0, count). Computes 4
/// vectors at a time, and reads what these need of s.
template <typename T>
void convolve(const double* s, const T* factors, std::int64_t width, double summand, std::int64_t count, T* out) {
  constexpr int kVectors = 4;
  constexpr int kLanes = simd::kLanes<double>;
  for (std::int64_t t = 0; t < count; t += kVectors * kLanes) {
    simd::Vec<double> sums[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[v] = simd::broadcast<double>(summand);
    for (std::int64_t k = 0; k < width; ++k) {
      const auto factor = static_cast<double>(factors[k]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[v] += factor * simd::load<double>(s + t + k + v * kLanes);
    }
    if (t + kVectors * kLanes <= count) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) simd::store(out + t + v * kLanes, sums[v]);
    } else {
      double last[kVectors * kLanes];
      __builtin_memcpy(last, sums, sizeof last);
      for (std::int64_t i = 0; i < count - t; ++i) out[t + i] = static_cast<T>(last[i]);
    }
  }
}

/// x[t] / (1 + exp(-x[t])) in place of each x[t].
template <typename T>
void silu(T* x, std::int64_t count) {
  constexpr int kLanes = simd::kLanes<T>;
  std::int64_t t = 0;
  for (; t + kLanes <= count; t += kLanes) {
    const simd::Vec<T> v = simd::load<T>(x + t);
    simd::store(x + t, v / (1 + simd::exp(-v)));
  }
  if (t < count) {
    const simd::Vec<T> v = simd::load_part<T>(x + t, count - t);
    simd::store_part(x + t, v / (1 + simd::exp(-v)), count - t);
  }
}

template <typename T>
void causal_conv1d(TensorView<const T> x, TensorView<const T> weight, OptionalView<const T> bias,
                   OptionalView<const T> initial_states, const char* activation, TensorView<T> out,
                   TensorView<T> final_states) {
  constexpr std::int64_t kStepsPerThread = 8192;
  constexpr std::int64_t kPart = 512;  // steps, which stay in the cache with their sums: whole vectors at every level
  const std::int64_t channels = x.size(1), steps = x.size(2), width = weight.size(1), before = width - 1;
  const bool activated = !equal(activation, "none");

  parallel_for(0, x.size(0) * channels, 1 + kStepsPerThread / (steps + 1), [&](std::int64_t first, std::int64_t last) {
    std::vector<double> s(static_cast<std::size_t>(before + kPart));
    for (std::int64_t row = first; row < last; ++row) {  // of a sequence and a channel
      for (std::int64_t k = 0; k < before; ++k) {
        s[static_cast<std::size_t>(k)] =
            initial_states ? static_cast<double>(initial_states->data[row * before + k]) : 0;
      }
      const double summand = bias ? static_cast<double>(bias->data[row % channels]) : 0;
      for (std::int64_t t = 0; t < steps; t += kPart) {
        const std::int64_t count = std::min(kPart, steps - t);
        std::copy_n(x.data + row * steps + t, count, s.data() + before);
        T* const to = out.data + row * steps + t;
        convolve(s.data(), weight.data + row % channels * width, width, summand, count, to);
        if (activated) silu(to, count);
        std::copy_n(s.data() + count, before, s.data());  // the steps before the next part
      }
      for (std::int64_t k = 0; k < before; ++k) {
        final_states.data[row * before + k] = static_cast<T>(s[static_cast<std::size_t>(k)]);
      }
    }
  });
}

}  // namespace opmatrix::causal_conv1d
