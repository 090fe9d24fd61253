// Group normalization over contiguous tensors.
//
//   y[n, c, ...] = (x[n, c, ...] - mean) / sqrt(variance + epsilon) * scale[c] + bias[c]
//
// with mean and (biased) variance over the C / num_groups channels of the group of c in sample n, and all axes
// after them. Y. Wu, K. He, Group Normalization, 2018.
//
// Shapes   x and y (N, C, ...), num_groups (1,), scale and bias (C,). num_groups is a whole number > 0, a divisor
//          of C.
// Numbers  Computed in double and rounded once; two-byte types in float and then rounded, with moments in double
//          (those of bfloat16 from sums of 8 numbers in float), where no error of float is left: less than 0.1 units
//          in the last place. The mean may be 1e6 deviations away, finite elements of any size are normalized, and a
//          group of equal elements has variance 0, exactly. Each product with scale must fit the type.
// NaN      A NaN or an infinity makes its whole group NaN, as in the formula; other groups are not affected.
// Empty    No samples, or no elements in a channel: nothing to do.
// Aliasing y overlaps no input.
#pragma once

#include <cstdint>

#include "opmatrix/check.h"
#include "opmatrix/math.h"
#include "opmatrix/parallel.h"
#include "opmatrix/simd.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::group_norm {

using Doubles = simd::Vec<double>;
inline constexpr int kLanes = simd::kLanes<double>;
inline constexpr int kFloats = simd::kLanes<float>;
inline constexpr int kLine = 64;  // bytes of a line of the cache

struct Sums {
  double sum;
  double square;
};

struct Moments {
  double mean;
  double rest;  // what rounding cut from the mean
  double variance;
};

/// Returns the sums of d and of d * d, where d is x[i] * unit - shift; x[i] where T has two bytes, as a double holds
/// the square of that exactly. Of four bytes, unit is 1. Meanwhile the cache fetches what lies `ahead` bytes after each
/// element.
template <typename T>
Sums sums(const T* x, std::int64_t count, double unit, double shift, std::int64_t ahead) {
  const auto of = [&](auto number) __attribute__((always_inline)) {
    if constexpr (sizeof(T) == 2) {
      return number;
    } else if constexpr (sizeof(T) == 4) {
      return number - shift;
    } else {
      return number * unit - shift;
    }
  };
  Doubles sums[4] = {};  // independent of each other, to hide the latency of an addition
  Doubles squares[4] = {};
  const auto add = [&](const auto* from, int chain) __attribute__((always_inline)) {
    const Doubles d = of(simd::load<double>(from));
    sums[chain] += d;
    squares[chain] += d * d;
  };
  const auto add_four = [&](const auto* from) __attribute__((always_inline)) {
    add(from, 0);
    add(from + kLanes, 1);
    add(from + 2 * kLanes, 2);
    add(from + 3 * kLanes, 3);
  };
  constexpr std::int64_t kStep = 4 * kLanes;
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const auto* next = reinterpret_cast<const char*>(x + i) + ahead;
    for (std::size_t line = 0; line < kStep * sizeof(T); line += kLine) __builtin_prefetch(next + line);
    if constexpr (sizeof(T) == 2) {
      float some[kStep];  // converted by whole registers
      simd::store(some, simd::load<float>(x + i));
      simd::store(some + kFloats, simd::load<float>(x + i + kFloats));
      add_four(some);
    } else {
      add_four(x + i);
    }
  }
  for (; i + kLanes <= count; i += kLanes) add(x + i, 0);
  double sum = simd::sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  double square = simd::sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
  for (; i < count; ++i) {
    const double d = of(static_cast<double>(x[i]));
    sum += d;
    square += d * d;
  }
  return {sum, square};
}

/// The same in half the time. A float has 24 bits, and x[i] has 8: a sum of 8 numbers or squares is rounded only where
/// these differ much, and then the error is small compared with their variance.
inline Sums sums(const BFloat16* x, std::int64_t count, double unit, double shift, std::int64_t ahead) {
  constexpr std::int64_t kStep = 8 * kFloats;
  Doubles sum{};
  Doubles square{};
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    simd::Vec<float> some[2] = {};  // the sums of 8 numbers in each lane, and of 8 squares
    for (int k = 0; k < kStep; k += 2 * kFloats) {
      const auto d = simd::load_pair<float>(x + i + k);
      some[0] += d.a + d.b;
      some[1] += d.a * d.a + d.b * d.b;
    }
    float parts[2 * kFloats];
    simd::store(parts, some[0]);
    simd::store(parts + kFloats, some[1]);
    sum += simd::load<double>(parts) + simd::load<double>(parts + kLanes);
    square += simd::load<double>(parts + kFloats) + simd::load<double>(parts + kFloats + kLanes);
  }
  const Sums rest = sums<BFloat16>(x + i, count - i, unit, shift, ahead);
  const Sums all = {rest.sum + simd::sum(sum), rest.square + simd::sum(square)};
  const bool in_range = all.square > 0x1p-80 && all.square < 0x1p120;  // of the squares in float; also for NaN
  return in_range ? all : sums<BFloat16>(x, count, unit, shift, ahead);
}

/// Returns mean and biased variance of x[0 .. count) * unit, count > 0, in one pass over blocks, which are joined as in
/// T. Chan, G. Golub, R. LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.
/// `ahead` is as in `sums`.
template <typename T>
Moments moments(const T* x, std::int64_t count, double unit, std::int64_t ahead) {
  constexpr std::int64_t kBlock = sizeof(T) == 4 ? 4096 : 1024;  // a double has 29 bits more than a float
  double mean = sizeof(T) == 2 ? 0 : x[0] * unit;
  if constexpr (sizeof(T) == sizeof(double)) {  // has no bits to spare where x[0] is far from the others
    const std::int64_t size = count < kBlock ? count : kBlock;
    mean += sums(x, size, unit, mean, 0).sum * (1 / static_cast<double>(size));  // need not wait for a division
  }
  double rest = 0;
  double square = 0;
  double lost = 0;  // what rounding cut from it
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t size = count - begin < kBlock ? count - begin : kBlock;
    const Sums block = sums(x + begin, size, unit, mean, ahead);
    const double offset = block.sum * (1 / static_cast<double>(size));
    const double apart = offset - rest;  // of the block's mean from that of the blocks before
    const double share = static_cast<double>(size) / static_cast<double>(begin + size);
    const double more = block.square - block.sum * offset + apart * apart * share * static_cast<double>(begin) + lost;
    const double grown = square + more;
    lost = more - (grown - square);
    square = grown;
    rest += apart * share;
    if constexpr (sizeof(T) > 2) {  // of two bytes, the sums have no shift
      const double moved = mean + rest;
      rest -= moved - mean;
      mean = moved;
    }
  }
  const double variance = square / static_cast<double>(count);
  return {mean + rest, rest, variance < 0 ? 0 : variance};  // rounding can bring it below 0; a NaN stays
}

/// How the elements of a channel are normalized, or with V = Doubles one element each of some channels.
template <typename T, typename V>
struct Line {
  double unit;
  V shift;
  double step;
  V factor;
  V bias;
  std::int64_t ahead;  // from an element to the same one of the next group

  [[gnu::always_inline]] auto operator()(auto x) const {
    if constexpr (sizeof(T) < sizeof(double)) {
      return (x - shift) * factor + bias;
    } else {
      return (x * unit - shift) * step * factor + bias;
    }
  }
};

/// Calls f(0), f(1), ... f(kTimes - 1), without a loop.
template <int kTimes>
[[gnu::always_inline]] inline void repeat(const auto& f) {
  if constexpr (kTimes > 1) repeat<kTimes - 1>(f);
  f(kTimes - 1);
}

/// Normalizes x[0 .. count). A vector may reach into the next channel, which is written after this one: `room` elements
/// are left in the group. Meanwhile the second cache fetches the next group, so that its moments need not wait for
/// memory, and the first keeps this one; after the last group a prefetch reads nothing. kPast: stores past the cache.
template <bool kPast, typename T>
[[gnu::always_inline]] inline void normalize(const T* x, std::int64_t count, std::int64_t room,
                                             const Line<T, double>& line, T* __restrict__ y) {
  const auto some = [&](std::int64_t i) __attribute__((always_inline)) {
    const Doubles found = line(simd::load<double>(x + i));
    if constexpr (kPast) {
      simd::stream(y + i, found);
    } else {
      simd::store(y + i, found);
    }
  };
  constexpr int kStep = kLine / static_cast<int>(sizeof(T));
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    __builtin_prefetch(x + i + line.ahead, 0, 2);
    repeat<kStep / kLanes>([&](int k) __attribute__((always_inline)) { some(i + k * kLanes); });
  }
  for (; i + kLanes <= count; i += kLanes) some(i);
  if (i == count) return;
  if (i + kLanes <= room) {
    simd::store(y + i, line(simd::load<double>(x + i)));
  } else {
    simd::store_part(y + i, line(simd::load_part<double>(x + i, count - i)), count - i);
  }
}

/// Whether the errors of float in these results, of a T of two bytes, are at most 0.05 units in the last place of T:
/// not where the bias cancels the product.
template <typename T, typename V>
[[gnu::always_inline]] inline auto exact_enough(V found, V bias) {
  constexpr float kLeast = 0x1p-18F / std::numeric_limits<T>::epsilon();
  return simd::abs(found) >= simd::abs(bias) * kLeast;
}

/// Normalizes 2 * N elements of a T of two bytes in float by `rough`, and in double by the line that `exact` returns
/// where float is not exact enough.
template <int N, typename T, typename Exact>
[[gnu::always_inline]] inline void normalize_some(const T* x, const Line<T, float>& rough, const Exact& exact, T* y) {
  const auto bias = simd::broadcast<float, N>(rough.bias);
  const auto from = simd::load_pair<float, N>(x);
  const simd::Pair<float, N> found = {rough(from.a), rough(from.b)};
  simd::store_pair(y, found);
  if (!simd::all(exact_enough<T>(found.a, bias) & exact_enough<T>(found.b, bias)))
    normalize<false>(x, 2 * N, 2 * N, exact(), y);
}

/// The same for `count` elements. `room` and the next group are as in `normalize`.
template <typename T, typename Exact>
[[gnu::always_inline]] inline void normalize_in_float(const T* x, std::int64_t count, std::int64_t room,
                                                      const Line<T, float>& rough, const Exact& exact,
                                                      T* __restrict__ y) {
  std::int64_t i = 0;
  for (; i + 2 * kFloats <= count; i += 2 * kFloats) {
    __builtin_prefetch(x + i + rough.ahead);
    normalize_some<kFloats>(x + i, rough, exact, y + i);
  }
  if (i + kFloats <= count) {
    normalize_some<kFloats / 2>(x + i, rough, exact, y + i);
    i += kFloats;
  }
  if (i < count) normalize<false>(x + i, count - i, room - i, exact(), y + i);
}

/// Returns a power of two above `rate`, at most four times as large.
inline double power_above(double rate) {
  using Number = double;  // doit mutate cannot read a keyword as an argument
  const auto bits = __builtin_bit_cast(std::uint64_t, rate);
  return __builtin_bit_cast(Number, (bits & 0x7FE0'0000'0000'0000) + 0x0010'0000'0000'0000);
}

/// Whether float has the range for what is computed with these, in all lanes.
inline bool fits_float(double rate, Doubles factors) {
  const Doubles sizes = simd::abs(factors);
  return rate > 0x1p-60 && rate < 0x1p60 && simd::all((sizes > 0x1p-60) & (sizes < 0x1p40));
}

/// Normalizes one group of `channels` channels with `pixels` elements each. scale and bias are those of its channels.
/// kPast: a T of more than two bytes is stored past the cache.
template <bool kPast, typename T>
void normalize_group(const T* x, std::int64_t channels, std::int64_t pixels, const T* scale, const T* bias,
                     double epsilon, T* y) {
  constexpr bool kDouble = sizeof(T) == sizeof(double);
  const std::int64_t count = channels * pixels;
  double unit = 1;
  // Where y is stored in the cache, its lines are there before it is written.
  const std::int64_t ahead = kPast ? 0 : reinterpret_cast<const char*>(y) - reinterpret_cast<const char*>(x);
  Moments m = moments(x, count, unit, ahead);
  if (kDouble && !(m.variance + epsilon > 1e-280 && m.variance < 1e280)) {  // also for NaN
    // Squares overflow or vanish; in units of another power of two they do not. epsilon no longer counts: it is 0, or
    // next to nothing.
    unit = m.variance < 1 ? 0x1p600 : 0x1p-600;
    m = moments(x, count, unit, ahead);
    epsilon = 0;
  }
  const double rate = 1 / sqrt(m.variance + epsilon);
  const double step = kDouble ? power_above(rate) : 1;
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    const std::int64_t left = channels - c;
    const auto load = [left](const T* from) __attribute__((always_inline)) {
      return left < kLanes ? simd::load_part<double>(from, left, 1) : simd::load<double>(from);
    };
    const Doubles scales = load(scale + c);
    Line<T, Doubles> line = {unit, simd::broadcast(m.mean), step, scales * (rate / step), load(bias + c), count};
    if constexpr (kDouble) {
      // A mean near 0 is not subtracted from x, which would be rounded, but its product from the bias where that is
      // larger: no more is rounded then than in adding the bias.
      const Doubles product = line.factor * (m.mean * step);
      const Doubles rest = line.factor * (m.rest * step);  // NaN for an infinite scale
      const auto near = simd::abs(product) <= simd::min(simd::abs(line.bias), simd::broadcast(1e290));
      const auto finite = simd::abs(rest) < simd::broadcast(__builtin_inf());
      line.shift = near ? Doubles{} : line.shift;
      line.bias -= (near ? product : Doubles{}) + (finite ? rest : Doubles{});
    }
    if (pixels == 1) {
      const Doubles found = line(load(x + c));
      if (left < kLanes) {
        simd::store_part(y + c, found, left);
      } else {
        simd::store(y + c, found);
      }
      continue;
    }
    // What rounding cuts from the mean in float is subtracted from the bias.
    const auto near = static_cast<float>(m.mean);
    const auto factors = simd::convert<float>(line.factor);
    const auto biases = simd::convert<float>(line.bias - line.factor * (m.mean - static_cast<double>(near)));
    const bool fits = sizeof(T) == 2 && fits_float(rate, line.factor);
    // Channels of 4 to 16 elements are common, as in the last layers for images: their loops are without inner ones.
    const auto exact = [&](int k) __attribute__((always_inline)) {
      return Line<T, double>{unit, line.shift[k], step, line.factor[k], line.bias[k], count};
    };
    if constexpr (sizeof(T) == 2) {
      if (fits && pixels == 16) {
        constexpr int kWide = kFloats < 8 ? kFloats : 8;
        for (int k = 0; k < kLanes && k < left; ++k) {
          const Line<T, float> rough = {1, near, 1, factors[k], biases[k], count};
          const std::int64_t begin = (c + k) * pixels;
          repeat<8 / kWide>([&](int n) __attribute__((always_inline)) {
            const std::int64_t from = begin + n * 2 * kWide;
            normalize_some<kWide>(x + from, rough, [&] { return exact(k); }, y + from);
          });
        }
        continue;
      }
    }
    for (int k = 0; k < kLanes && k < left; ++k) {
      const std::int64_t begin = (c + k) * pixels;
      const auto one = [&] { return exact(k); };
      if constexpr (sizeof(T) == 2) {
        constexpr int kFew = kLanes < 4 ? 4 : kLanes;
        if (fits && pixels <= kFew && begin + kFew <= count) {
          const auto found = (simd::load<float, kFew>(x + begin) - near) * factors[k] + biases[k];
          simd::store(y + begin, found);
          if (simd::all(exact_enough<T>(found, simd::broadcast<float, kFew>(biases[k])))) continue;
        }
      }
      if (pixels <= kLanes && begin + kLanes <= count) {
        simd::store(y + begin, one()(simd::load<double>(x + begin)));
        continue;
      }
      if (sizeof(T) > 2 && !kPast && pixels == 2 * kLanes) {
        simd::store(y + begin, one()(simd::load<double>(x + begin)));
        simd::store(y + begin + kLanes, one()(simd::load<double>(x + begin + kLanes)));
        continue;
      }
      if constexpr (sizeof(T) == 2) {
        if (fits) {
          const Line<T, float> rough = {1, near, 1, factors[k], biases[k], count};
          normalize_in_float(x + begin, pixels, count - begin, rough, one, y + begin);
          continue;
        }
      }
      normalize<kPast>(x + begin, pixels, count - begin, one(), y + begin);
    }
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
  constexpr std::int64_t kElementsPerThread = 8192;  // for fewer, a thread costs more than it brings
  constexpr std::int64_t kLarge = 1 << 25;           // bytes of y, as many as the cache keeps until they are read
  const std::int64_t groups = checked_groups(num_groups.data[0], x.size(1));
  const std::int64_t channels = x.size(1) / groups;  // of one group
  const std::int64_t pixels = numel(x.sizes, 2);
  const std::int64_t count = channels * pixels;
  if (x.numel() == 0) return;

  const auto bytes = static_cast<std::int64_t>(sizeof(T));
  const bool aligned =
      pixels * bytes % simd::kBytes == 0 && reinterpret_cast<std::uintptr_t>(y.data) % simd::kBytes == 0;
  const bool past = sizeof(T) > 2 && aligned && x.numel() * bytes > kLarge;
  const auto normalize_groups = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) {
      const std::int64_t c = group % groups * channels;
      const auto one = past ? normalize_group<true, T> : normalize_group<false, T>;
      one(x.data + group * count, channels, pixels, scale.data + c, bias.data + c, static_cast<double>(epsilon),
          y.data + group * count);
    }
    if (past) simd::flush_streams();
  };
  parallel_for(0, x.size(0) * groups, 1 + (kElementsPerThread - 1) / count, normalize_groups);
}

}  // namespace opmatrix::group_norm
