// Group normalization over contiguous tensors.
//
//   y[n, c, ...] = (x[n, c, ...] - mean) / sqrt(variance + epsilon) * scale[c] + bias[c]
//
// with mean and (biased) variance over the C / num_groups channels of the group of c in sample n, and all axes
// after them. Y. Wu, K. He, Group Normalization, 2018.
//
// Shapes   x and y (N, C, ...), num_groups (1,), scale and bias (C,). num_groups is a whole number > 0, a divisor
//          of C.
// Numbers  Computed in double and rounded once. Moments are taken of x less the first element of the group: the mean
//          may be 1e6 deviations away, finite elements of any size are normalized, and a group of equal elements has
//          variance 0, exactly. Each product with scale must fit the type.
// NaN      A NaN or an infinity makes its whole group NaN, as in the formula; other groups are not affected.
// Empty    No samples, or no elements in a channel: nothing to do.
// Aliasing y overlaps no input.
#pragma once

#include <cstdint>
#include <cstring>

#include "opmatrix/check.h"
#include "opmatrix/lanes.h"
#include "opmatrix/math.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::group_norm {

struct Moments {
  double mean;
  double rest;  // what rounding cut from the mean
  double variance;
};

/// Returns x[0 .. kLanes) in double.
template <typename T>
[[gnu::always_inline]] inline Lanes<double> widened(const T* x) {
  if constexpr (sizeof(T) == 2) {  // converts only by itself
    return Lanes<double>{x[0], x[1], x[2], x[3]};
  } else {
    Lanes<T> loaded;
    std::memcpy(&loaded, x, sizeof loaded);
    return __builtin_convertvector(loaded, Lanes<double>);
  }
}

/// Returns mean and biased variance of x[0 .. count) * unit, count > 0, in one pass.
template <typename T>
OPMATRIX_EACH_CPU Moments moments(const T* x, std::int64_t count, double unit) {
  constexpr int kChains = 2;  // of kLanes independent sums each, to hide the latency of an addition
  const double shift = x[0] * unit;
  Lanes<double> sums[kChains] = {};
  Lanes<double> squares[kChains] = {};
  std::int64_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes) {
    for (int chain = 0; chain < kChains; ++chain) {
      const Lanes<double> d = widened(x + i + chain * kLanes) * unit - shift;
      sums[chain] += d;
      squares[chain] += d * d;
    }
  }
  double sum = 0;
  double square = 0;
  for (; i < count; ++i) {
    const double d = x[i] * unit - shift;
    sum += d;
    square += d * d;
  }
  for (int chain = 1; chain < kChains; ++chain) {
    sums[0] += sums[chain];
    squares[0] += squares[chain];
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    sum += sums[0][lane];
    square += squares[0][lane];
  }
  const double offset = sum / static_cast<double>(count);
  const double variance = square / static_cast<double>(count) - offset * offset;
  const double mean = shift + offset;
  return {mean, offset - (mean - shift), variance < 0 ? 0 : variance};  // rounding can bring it below 0; a NaN stays
}

/// y[i] = (x[i] * unit - m.mean - m.rest) * rate * scale + bias, in double; unit is 1 for float.
template <typename T>
OPMATRIX_EACH_CPU void normalize(const T* x, std::int64_t count, double unit, const Moments& m, double rate,
                                 double scale, double bias, T* __restrict__ y) {
  const double mean = m.mean, rest = m.rest;
  if constexpr (sizeof(T) < sizeof(double)) {  // the mean of floats and rate * scale fit a double
    const double factor = rate * scale;
    for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<T>((x[i] - mean) * factor + bias);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] * unit - mean - rest) * rate * scale + bias;
  }
}

/// Normalizes one group of `channels` channels with `pixels` elements each. scale and bias are those of its channels.
template <typename T>
void normalize_group(const T* x, std::int64_t channels, std::int64_t pixels, const T* scale, const T* bias,
                     double epsilon, T* y) {
  const std::int64_t count = channels * pixels;
  double unit = 1;
  Moments m = moments(x, count, unit);
  if (sizeof(T) == sizeof(double) && !(m.variance + epsilon > 1e-280 && m.variance < 1e280)) {  // also for NaN
    // Squares overflow or vanish; in units of another power of two they do not. epsilon no longer counts: it is 0, or
    // next to nothing.
    unit = m.variance < 1 ? 0x1p600 : 0x1p-600;
    m = moments(x, count, unit);
    epsilon = 0;
  }
  const double rate = 1 / sqrt(m.variance + epsilon);
  for (std::int64_t c = 0; c < channels; ++c) {
    normalize(x + c * pixels, pixels, unit, m, rate, scale[c], bias[c], y + c * pixels);
  }
}

/// Returns num_groups as a number that divides `channels`, or throws.
inline std::int64_t checked_groups(float num_groups, std::int64_t channels) {
  KERNEL_CHECK(num_groups > 0 && num_groups == floor(num_groups),
               "group_norm: num_groups must be a whole number greater than 0, got ", num_groups);
  // Compared as float first: a float beyond int64 must not be converted.
  KERNEL_CHECK((channels == 0 || num_groups <= static_cast<float>(channels)) && num_groups < 0x1p62F &&
                   channels % static_cast<std::int64_t>(num_groups) == 0,
               "group_norm: num_groups must divide the ", channels, " channels of x, got ", num_groups);
  return static_cast<std::int64_t>(num_groups);
}

template <typename T>
void group_norm(TensorView<const T> x, TensorView<const float> num_groups, TensorView<const T> scale,
                TensorView<const T> bias, float epsilon, TensorView<T> y) {
  constexpr std::int64_t kElementsPerThread = 32768;  // as torch has it: below that a thread costs more than it brings
  const std::int64_t groups = checked_groups(num_groups.data[0], x.size(1));
  const std::int64_t channels = x.size(1) / groups;  // of one group
  const std::int64_t pixels = numel(x.sizes, 2);
  const std::int64_t count = channels * pixels;
  if (x.numel() == 0) return;

  const auto normalize_groups = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const std::int64_t c = group % groups * channels;
      normalize_group(x.data + group * count, channels, pixels, scale.data + c, bias.data + c,
                      static_cast<double>(epsilon), y.data + group * count);
    }
  };
  parallel_for(0, x.size(0) * groups, 1 + (kElementsPerThread - 1) / count, normalize_groups);
}

}  // namespace opmatrix::group_norm
