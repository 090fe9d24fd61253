// Measures the errors of opmatrix/simd_math.h: `simd_math STEP COUNT` prints one line per function and type.
//
// float: each STEP-th of the 2^32 floats, and those near special ones, against glibc's function of double. double:
// COUNT numbers where the function is neither constant nor a subnormal number, and as many of any bits, against glibc's
// of long double, for log of 128 bits: that of long double is an instruction, and Bochs has errors of 6 ULP of double.
// Its errors are below 1 ULP of what it computes in: 2^-29 and 2^-11 ULP of what is measured.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "opmatrix/simd_math.h"

namespace simd = opmatrix::simd;

__float128 log_of_128_bits(__float128 x) noexcept __asm__("logf128");

namespace precise {

using std::erf, std::exp, std::tanh;

inline double log(double x) {
  return std::log(x);
}
inline long double log(long double x) {
  return static_cast<long double>(log_of_128_bits(x));
}

}  // namespace precise

template <typename T>
using Bits = simd::detail::Positive<T>;

template <typename T>
Bits<T> bits_of(T value) {
  return __builtin_bit_cast(Bits<T>, value);
}

template <typename T>
T of_bits(Bits<T> bits) {
  return __builtin_bit_cast(T, bits);
}

template <typename T>
struct Precise {
  using type = double;
};
template <>
struct Precise<double> {
  using type = long double;
};

template <typename T>
constexpr int kFraction = sizeof(T) == 4 ? 23 : 52;
template <typename T>
constexpr int kLeastExponent = sizeof(T) == 4 ? -126 : -1022;

// What float and double have in place of a truth: infinite where it rounds to that, NaN of any bits, and zeros' signs.
template <typename T>
double error(T found, typename Precise<T>::type truth) {
  const T nearest = static_cast<T>(truth);
  if (std::isnan(truth) || std::isnan(found)) return std::isnan(truth) && std::isnan(found) ? 0 : HUGE_VAL;
  if (std::isinf(truth) || std::isinf(found)) {
    // The greatest number in place of infinity, or the reverse, is one step.
    if (found == nearest) return 0;
    if (std::isinf(truth) || std::signbit(found) != std::signbit(nearest)) return HUGE_VAL;
    const auto apart = static_cast<double>(bits_of(std::fabs(found)) - bits_of(std::fabs(nearest)));
    return std::fabs(apart) <= 2 ? 1 : HUGE_VAL;
  }
  if (found == 0 && truth == 0) return std::signbit(found) == std::signbit(truth) ? 0 : HUGE_VAL;
  if (found != 0 && truth != 0 && std::signbit(found) != std::signbit(truth)) return HUGE_VAL;
  int exponent = 0;
  std::frexp(truth, &exponent);
  const int least = std::max(exponent - 1, kLeastExponent<T>) - kFraction<T>;
  return static_cast<double>(std::ldexp(std::fabs(static_cast<typename Precise<T>::type>(found) - truth), -least));
}

template <typename T>
struct Worst {
  const char* name;
  double error = 0;
  T at = 0, found = 0;
  std::uint64_t count = 0;

  void print() const {
    std::printf("%-5s %-6s %.4f at %.17g (%.17g), of %llu\n", name, sizeof(T) == 4 ? "float" : "double", error,
                static_cast<double>(at), static_cast<double>(found), static_cast<unsigned long long>(count));
  }
};

template <typename T, typename Function, typename Truth>
void measure(Worst<T>& worst, const T* x, Function function, Truth truth) {
  constexpr int N = simd::kLanes<T>;
  T y[N];
  simd::store(y, function(simd::load<T>(x)));
  for (int i = 0; i < N; ++i) {
    const double found = error<T>(y[i], truth(static_cast<typename Precise<T>::type>(x[i])));
    ++worst.count;
    if (found > worst.error) {
      worst.error = found;
      worst.at = x[i];
      worst.found = y[i];
    }
  }
}

std::uint64_t random_bits() {  // S. Vigna's splitmix64
  static std::uint64_t state = 0;
  std::uint64_t z = (state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// `least` to `most`: where the function is not constant, and further.
template <typename T, typename Function, typename Truth>
void all(const char* name, double least, double most, std::uint64_t step, std::uint64_t count, Function function,
         Truth truth) {
  constexpr int N = simd::kLanes<T>;
  Worst<T> worst{name};
  T x[N] = {};
  int filled = 0;
  const auto take = [&](T value) {
    x[filled++] = value;
    if (filled == N) {
      measure(worst, x, function, truth);
      filled = 0;
    }
  };
  // Neighbours of special numbers, with both signs.
  const double special[] = {0.0,
                            1.0,
                            0.5,
                            2.0,
                            HUGE_VAL,
                            M_SQRT1_2,
                            M_SQRT2,
                            88.722839,
                            87.336544,
                            103.97208,
                            5.92,
                            3.919,
                            709.782712893384,
                            708.396418532264,
                            745.1332191019411,
                            9.01,
                            19.06,
                            0.3465735902799727};
  for (const double value : special) {
    for (std::int64_t near = -40; near <= 40; ++near) {
      const T from = of_bits<T>(static_cast<Bits<T>>(bits_of(static_cast<T>(value)) + static_cast<Bits<T>>(near)));
      take(from);
      take(-from);
    }
  }
  for (const T value : {static_cast<T>(NAN), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()}) {
    for (int near = -3; near <= 3; ++near) {
      take(of_bits<T>(static_cast<Bits<T>>(bits_of(value) + static_cast<Bits<T>>(near))));
      take(-of_bits<T>(static_cast<Bits<T>>(bits_of(value) + static_cast<Bits<T>>(near))));
    }
  }
  if constexpr (sizeof(T) == 4) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += step)
      take(of_bits<T>(static_cast<std::uint32_t>(bits)));
  } else {
    for (std::uint64_t i = 0; i < count; ++i) {
      take(of_bits<T>(random_bits()));
      take(least + (most - least) * static_cast<double>(random_bits() >> 11) * 0x1p-53);
      take(std::ldexp(static_cast<double>(random_bits() >> 11) * 0x1p-53 - 0.5, static_cast<int>(i % 8) - 4));
    }
  }
  while (filled != 0) take(1);
  worst.print();
}

int main(int, char** arguments) {
  const auto step = std::strtoull(arguments[1], nullptr, 10), count = std::strtoull(arguments[2], nullptr, 10);
#define MEASURE(function, least, most)                                               \
  all<float>(                                                                        \
      #function, least, most, step, count, [](auto v) { return simd::function(v); }, \
      [](double x) { return precise::function(x); });                                \
  all<double>(                                                                       \
      #function, least, most, step, count, [](auto v) { return simd::function(v); }, \
      [](long double x) { return precise::function(x); });
  MEASURE(exp, -746, 710)
  MEASURE(log, 0, 4)
  MEASURE(erf, -6, 6)
  MEASURE(tanh, -20, 20)
}
