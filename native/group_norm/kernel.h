// Group normalization over contiguous tensors.
//
//   y[n, c, ...] = (x[n, c, ...] - mean) / sqrt(variance + epsilon) * scale[c] + bias[c]
//
// with mean and (biased) variance over the C / num_groups channels of the group of c in sample n, and all that lies
// behind them. Y. Wu, K. He, Group Normalization, 2018.
//
// Shapes   x and y (N, C, ...), num_groups (1,), scale and bias (C,). num_groups holds a whole number > 0, a divisor
//          of C.
// Numbers  Moments are taken in double, of x less the first element of the group: the mean may be 1e6 deviations away,
//          squares neither overflow nor vanish for float, and a group of equal elements has variance 0, exactly.
// NaN      A NaN or an infinity makes its whole group NaN, as the formula has it; other groups do not see it.
// Empty    No samples, or no elements behind a channel: nothing to do.
// Aliasing y overlaps no input.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

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

/// Returns mean and biased variance of x[0 .. count), count > 0, in one pass.
template <typename T>
OPMATRIX_EACH_CPU Moments moments(const T* x, std::int64_t count) {
  constexpr int kChains = 2;  // of kLanes independent sums each, to hide the latency of an addition
  const double shift = x[0];
  Lanes<double> sums[kChains] = {};
  Lanes<double> squares[kChains] = {};
  std::int64_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes) {
    for (int chain = 0; chain < kChains; ++chain) {
      Lanes<T> loaded;
      std::memcpy(&loaded, x + i + chain * kLanes, sizeof loaded);
      const Lanes<double> d = __builtin_convertvector(loaded, Lanes<double>) - shift;
      sums[chain] += d;
      squares[chain] += d * d;
    }
  }
  double sum = 0;
  double square = 0;
  for (; i < count; ++i) {
    const double d = static_cast<double>(x[i]) - shift;
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

/// y[i] = (x[i] - m.mean - m.rest) * factor + summand.
template <typename T>
OPMATRIX_EACH_CPU void normalize(const T* x, std::int64_t count, const Moments& m, T factor, T summand,
                                 T* __restrict__ y) {
  // In two steps, because one T would lose what the mean has behind the point: for a float at 1000, 3e-5 deviations.
  const T coarse = static_cast<T>(m.mean);
  const T fine = static_cast<T>(m.mean - static_cast<double>(coarse) + m.rest);
  for (std::int64_t i = 0; i < count; ++i) y[i] = (x[i] - coarse - fine) * factor + summand;
}

/// Returns whether `normalize` loses nothing of a channel: its terms neither overflow nor vanish, nor does their sum.
template <typename T>
bool ordinary(const Moments& m, std::int64_t count, double epsilon, double factor, double summand) {
  constexpr double kLarge = static_cast<double>(std::numeric_limits<T>::max()) / 4;
  const double spread = sqrt(m.variance * static_cast<double>(count));  // no element is further from the mean
  const double size = factor < 0 ? -factor : factor;
  return m.variance + epsilon > 1e-280 && spread < kLarge && size < kLarge && size * spread < kLarge &&
         summand < kLarge && summand > -kLarge &&
         (size >= static_cast<double>(std::numeric_limits<T>::min()) || size == 0);
}

/// Normalizes a group whose numbers are too large or too small for `moments` and `normalize`, or are no numbers: in
/// units of a power of two whose squares a double holds, and in halves, because only the sum of two terms may fit.
template <typename T>
[[gnu::cold]] void normalize_extreme(const T* x, std::int64_t channels, std::int64_t pixels, const T* scale,
                                     const T* bias, double epsilon, T* y) {
  const std::int64_t count = channels * pixels;
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double size = x[i] < 0 ? -static_cast<double>(x[i]) : static_cast<double>(x[i]);
    if (size > largest) largest = size;
  }
  const double unit = largest > 0x1p400 ? 0x1p-600 : largest < 0x1p-400 && epsilon == 0 ? 0x1p600 : 1;
  const double shift = x[0] * unit;
  double mean = 0;
  for (std::int64_t i = 0; i < count; ++i) mean += x[i] * unit - shift;
  mean = shift + mean / static_cast<double>(count);
  double rest = 0;  // what rounding cut from the mean
  for (std::int64_t i = 0; i < count; ++i) rest += x[i] * unit - mean;
  rest /= static_cast<double>(count);
  double variance = 0;
  for (std::int64_t i = 0; i < count; ++i) variance += (x[i] * unit - mean - rest) * (x[i] * unit - mean - rest);
  variance = variance / static_cast<double>(count) + epsilon * unit * unit;
  // In units that are small for huge elements epsilon vanishes, but counts where these are all equal.
  const double rate = 1 / sqrt(variance == 0 ? epsilon : variance);
  for (std::int64_t i = 0; i < count; ++i) {
    const double normal = (x[i] * unit - mean - rest) * rate;
    const double half = normal * (scale[i / pixels] * 0.5) + bias[i / pixels] * 0.5;
    y[i] = static_cast<T>(2 * half);
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
      const Moments m = moments(x.data + group * count, count);
      const double rate = 1 / sqrt(m.variance + static_cast<double>(epsilon));
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        const std::int64_t c = group % groups * channels + channel;
        const std::int64_t first = group * count + channel * pixels;
        const double factor = rate * static_cast<double>(scale.data[c]);
        if (!ordinary<T>(m, count, epsilon, factor, bias.data[c])) {
          const std::int64_t c0 = c - channel;
          normalize_extreme(x.data + group * count, channels, pixels, scale.data + c0, bias.data + c0, epsilon,
                            y.data + group * count);
          break;
        }
        normalize(x.data + first, pixels, m, static_cast<T>(factor), bias.data[c], y.data + first);
      }
    }
  };
  parallel_for(0, x.size(0) * groups, 1 + (kElementsPerThread - 1) / count, normalize_groups);
}

}  // namespace opmatrix::group_norm
