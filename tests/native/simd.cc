// Compares opmatrix/simd.h with C++ itself, lane by lane: `simd FOLDER` ends with 1 at the first difference. In FOLDER
// it writes what Half and BFloat16 become, for NumPy to judge.
#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "opmatrix/float8.h"
#include "opmatrix/half.h"
#include "opmatrix/int4.h"
#include "opmatrix/simd.h"

using namespace opmatrix;

#if defined(OPMATRIX_CPU_LEVEL)
static_assert(simd::kBytes == (OPMATRIX_CPU_LEVEL == 4 ? 64 : OPMATRIX_CPU_LEVEL == 3 ? 32 : 16));
#endif

#define EXPECT(condition, ...)                                                      \
  do {                                                                              \
    if (!(condition)) {                                                             \
      std::printf("line %d: %s: %s\n", __LINE__, #condition, where<__VA_ARGS__>()); \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (false)

template <typename... T>
const char* where() {
  return __PRETTY_FUNCTION__;
}

std::uint64_t random_bits() {  // S. Vigna's splitmix64
  static std::uint64_t state = 0;
  std::uint64_t z = (state += 0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

/// Equal bits, or two NaN.
template <typename T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  }
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Memory between two pages that nobody may touch.
class Guarded {
 public:
  static constexpr std::size_t kPage = 4096;
  Guarded() : all_(mmap(nullptr, 3 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    mprotect(begin(), kPage, PROT_READ | PROT_WRITE);
  }
  ~Guarded() { munmap(all_, 3 * kPage); }
  Guarded(const Guarded&) = delete;
  char* begin() const { return static_cast<char*>(all_) + kPage; }
  char* end() const { return begin() + kPage; }

 private:
  void* all_;
};

/// Numbers that every dtype has; of small integers, any.
template <typename S>
S some(int i) {
  if constexpr (std::is_same_v<S, bool>) return (i * 7 % 3) == 0;
  if constexpr (std::is_integral_v<S> && sizeof(S) <= 2) return static_cast<S>(i * 8423 + i / 3);  // all bits
  constexpr int kLeast = std::is_signed_v<S> || !std::is_integral_v<S> ? -5 : 0;
  return static_cast<S>(kLeast + (i * 5 + i / 7) % (kLeast == 0 ? 15 : 12));
}

/// load, load_part, store and store_part between S in memory and T in a vector.
template <typename T, int N, typename S>
void memory() {
  const Guarded source, target;
  for (int at = 0; at < 3; ++at) {
    S x[N], y[N];
    for (int i = 0; i < N; ++i) x[i] = some<S>(i + at * N);
    for (int count = 0; count <= N; ++count) {
      const std::size_t size = static_cast<std::size_t>(count) * sizeof(S);
      for (const bool at_end : {false, true}) {
        const auto* from = reinterpret_cast<const S*>(at_end ? source.end() - size : source.begin());
        auto* to = reinterpret_cast<S*>(at_end ? target.end() - size : target.begin());
        std::memcpy(const_cast<void*>(static_cast<const void*>(from)), static_cast<const void*>(x), size);
        std::memset(target.begin(), 0x55, Guarded::kPage);
        const T fill = static_cast<T>(count % 2 ? 3 : 0);
        const auto v = count == N ? simd::load<T, N>(from) : simd::load_part<T, N>(from, count, fill);
        for (int i = 0; i < N; ++i) EXPECT(same<T>(v[i], i < count ? static_cast<T>(x[i]) : fill), T, S);
        if (count == N) {
          simd::store(to, v);
        } else {
          simd::store_part(to, v, count);
        }
        std::memcpy(static_cast<void*>(y), static_cast<void*>(to), size);
        for (int i = 0; i < count; ++i)
          EXPECT(static_cast<T>(y[i]) == static_cast<T>(static_cast<S>(static_cast<T>(x[i]))), T, S);
        std::size_t changed = 0;
        for (const char* p = target.begin(); p < target.end(); ++p) {
          if (p < static_cast<void*>(to) || p >= static_cast<void*>(to + count)) changed += *p != 0x55;
        }
        EXPECT(changed == 0, T, S);
      }
    }
  }
}

/// stream stores what store does.
template <typename T, typename S>
void streams() {
  constexpr int N = simd::kLanes<T>;
  alignas(64) S x[2 * N], stored[2 * N], streamed[2 * N];
  for (int i = 0; i < 2 * N; ++i) x[i] = some<S>(i);
  const auto pair = simd::load_pair<T>(x);
  std::memset(static_cast<void*>(streamed), 0x55, sizeof streamed);
  simd::store(stored, pair.a);
  simd::store(stored + N, pair.b);
  simd::stream(streamed, pair.a);
  simd::stream(streamed + N, pair.b);
  simd::flush_streams();
  EXPECT(std::memcmp(stored, streamed, sizeof stored) == 0, T, S);
}

/// load_pair loads each element once, and store_pair writes each, rounded, where it was, and nothing else.
template <typename T, typename S>
void pairs() {
  constexpr int N = 2 * simd::kLanes<T>;
  const Guarded source, target;
  auto* from = reinterpret_cast<S*>(source.end()) - N;
  auto* to = reinterpret_cast<S*>(target.end()) - N;
  std::memset(target.begin(), 0x55, Guarded::kPage);
  for (int i = 0; i < N; ++i) from[i] = static_cast<S>(static_cast<T>(i + 1));
  auto pair = simd::load_pair<T>(from);
  EXPECT(simd::sum(pair.a + pair.b) == N * (N + 1) / 2, T, S);
  const T factor = T(1.003);
  pair.a *= factor;
  pair.b *= factor;
  simd::store_pair(to, pair);
  for (int i = 0; i < N; ++i) {
    const S expected = static_cast<S>(static_cast<T>(i + 1) * factor);
    EXPECT(std::memcmp(to + i, &expected, sizeof(S)) == 0, T, S);
  }
  EXPECT(reinterpret_cast<char*>(to)[-1] == 0x55, T, S);
}

template <typename T, int N, typename... S>
void memories() {
  (memory<T, N, S>(), ...);
}

/// Values of any bits, special ones and those of few bits.
template <typename T>
std::vector<T> values() {
  std::vector<T> all;
  if constexpr (std::is_floating_point_v<T>) {
    using L = std::numeric_limits<T>;
    const T infinity = L::infinity(), whole = 1 / L::epsilon();
    for (const T value :
         {T(0), T(0.5), T(1), T(1.5), T(2.5), infinity, L::quiet_NaN(), L::max(), L::min(), L::denorm_min(), whole,
          whole / 2 + T(0.5), whole / 2 - T(0.5), whole * 2, T(0.49999997), T(8388609), T(3e9)}) {
      all.push_back(value);
      all.push_back(-value);
    }
  } else {
    for (const std::int64_t value : {0, 1, -1, 2, 100}) all.push_back(static_cast<T>(value));
    all.push_back(std::numeric_limits<T>::max());
    all.push_back(std::numeric_limits<T>::min());
  }
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t bits = random_bits();
    T value;
    std::memcpy(&value, &bits, sizeof value);
    all.push_back(value);
    all.push_back(static_cast<T>(static_cast<double>(bits % 2000) / (std::is_floating_point_v<T> ? 64 : 20)));
  }
  while (all.size() % 128 != 0) all.push_back(1);
  return all;
}

template <typename T>
T product_plus(T a, T b, T c) {
#if defined(__FMA__)
  return std::fma(a, b, c);
#else
  volatile T product = a * b;
  return product + c;
#endif
}

/// Functions of each lane.
template <typename T, int N = simd::kLanes<T>>
void lanes() {
  using V = simd::Vec<T, N>;
  const std::vector<T> a = values<T>();
  for (std::size_t shift = 0; shift < 3; ++shift) {
    std::vector<T> b(a.begin() + static_cast<std::ptrdiff_t>(shift), a.end());
    b.insert(b.end(), a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shift));
    for (std::size_t at = 0; at < a.size(); at += N) {
      const T *p = &a[at], *q = &b[at];
      const V x = simd::load<T, N>(p), y = simd::load<T, N>(q);
      const V least = simd::min(x, y), most = simd::max(x, y), size = simd::abs(x);
      const V chosen = simd::select(x < y, x, y);
      EXPECT(simd::all((x < y) == (y > x)) && simd::none((x < y) & (x >= y)), T);
      std::uint64_t below = 0;
      for (int i = 0; i < N; ++i) {
        EXPECT(same<T>(least[i], p[i] < q[i] ? p[i] : q[i]) && same<T>(chosen[i], least[i]), T);
        EXPECT(same<T>(most[i], p[i] > q[i] ? p[i] : q[i]), T);
        below |= std::uint64_t{p[i] < q[i]} << i;
        if constexpr (std::is_floating_point_v<T>) {
          EXPECT(same(size[i], std::fabs(p[i])) && !std::signbit(size[i]), T);
        } else if (p[i] != std::numeric_limits<T>::min()) {
          EXPECT(size[i] == static_cast<T>(p[i] < 0 ? -p[i] : p[i]), T);
        }
      }
      EXPECT(simd::bits(x < y) == below && simd::any(x < y) == (below != 0) && simd::none(x < y) == (below == 0), T);
      if constexpr (std::is_floating_point_v<T>) {
        const V root = simd::sqrt(x), down = simd::floor(x), even = simd::round_even(x), sum = simd::fma(x, y, x);
        for (int i = 0; i < N; ++i) {
          EXPECT(same(root[i], std::sqrt(p[i])) && same(down[i], std::floor(p[i])), T);
          EXPECT(same(even[i], std::nearbyint(p[i])) && same(sum[i], product_plus(p[i], q[i], p[i])), T);
        }
      }
    }
  }
}

/// Functions of all lanes, and what makes a vector.
template <typename T, int N = simd::kLanes<T>>
void whole() {
  using V = simd::Vec<T, N>;
  const V counted = simd::iota<T, N>(), seven = simd::broadcast<T, N>(7);
  T sum = 0;
  for (int i = 0; i < N; ++i) {
    EXPECT(counted[i] == static_cast<T>(i) && seven[i] == 7, T);
    sum = static_cast<T>(sum + static_cast<T>(i) + 7);
  }
  EXPECT(simd::sum(counted + seven) == sum, T);
  const auto zero = counted != counted;
  EXPECT(!simd::any(zero) && simd::none(zero) && !simd::all(zero) && simd::all(counted == counted), T);
  for (int at = 0; at < N; ++at) {
    const auto one = counted == static_cast<T>(at);
    EXPECT(
        simd::bits(one) == std::uint64_t{1} << at && simd::any(one) && !simd::none(one) && simd::all(one) == (N == 1),
        T);
    EXPECT(!simd::all(~one) || N == 1, T);
    EXPECT(simd::largest(simd::select(one, seven + seven, seven)) == 14, T);
    EXPECT(simd::smallest(simd::select(one, seven - T(2), seven)) == 5, T);
    if constexpr (std::is_floating_point_v<T>) {
      const T infinity = std::numeric_limits<T>::infinity();
      EXPECT(simd::largest(simd::select(one, -seven, seven - infinity)) == -7, T);
      const V nan = simd::select(one, seven * std::numeric_limits<T>::quiet_NaN(), counted);
      EXPECT(std::isnan(simd::largest(nan)) && std::isnan(simd::smallest(nan)) && std::isnan(simd::sum(nan)), T);
      EXPECT(std::signbit(simd::broadcast<T, N>(T(-0.0))[at]), T);
    }
  }
  T base[97];
  std::int64_t index[N];
  for (int i = 0; i < 97; ++i) base[i] = static_cast<T>(3 * i % 101);
  for (int i = 0; i < N; ++i) index[i] = (i * 41 + 5) % 97;
  const V gathered = simd::gather<T, N>(base, simd::load<std::int64_t, N>(index));
  const V by_ints = simd::gather<T, N>(base, simd::load<std::int32_t, N>(index));
  for (int i = 0; i < N; ++i) EXPECT(gathered[i] == base[index[i]] && by_ints[i] == base[index[i]], T);
}

template <typename From>
std::vector<From> read(const std::string& name) {
  std::FILE* file = std::fopen(name.c_str(), "rb");
  EXPECT(file != nullptr);
  std::fseek(file, 0, SEEK_END);
  std::vector<From> values(static_cast<std::size_t>(std::ftell(file)) / sizeof(From));
  std::rewind(file);
  EXPECT(std::fread(static_cast<void*>(values.data()), sizeof(From), values.size(), file) == values.size());
  std::fclose(file);
  return values;
}

/// Writes every element of a file as type To, through vectors of T.
template <typename To, typename T, typename From, int N = simd::kLanes<T>>
void rewrite(const std::string& from, const std::string& to) {
  const std::vector<From> values = read<From>(from);
  std::vector<To> made(values.size());
  std::size_t i = 0;
  for (; i + N <= values.size(); i += N) simd::store(&made[i], simd::load<T, N>(&values[i]));
  const auto rest = static_cast<std::int64_t>(values.size() - i);
  if (rest != 0) simd::store_part(&made[i], simd::load_part<T, N>(&values[i], rest), rest);
  std::FILE* file = std::fopen(to.c_str(), "wb");
  std::fwrite(static_cast<const void*>(made.data()), sizeof(To), made.size(), file);
  std::fclose(file);
}

template <typename S>
void halves(const std::string& folder, const std::string& name) {
  rewrite<float, float, S>(folder + "bits", folder + name + "_float");
  rewrite<double, double, S>(folder + "bits", folder + name + "_double");
  rewrite<float, float, S, 2>(folder + "bits", folder + name + "_float_of_two");
  rewrite<S, float, float>(folder + "floats", folder + name + "_of_floats");
  rewrite<S, float, float, 2 * simd::kLanes<float>>(folder + "floats", folder + name + "_of_floats_twice");
  rewrite<S, double, double>(folder + "doubles", folder + name + "_of_doubles");
  rewrite<S, double, double, 4>(folder + "doubles", folder + name + "_of_four_doubles");
}

int main(int, char** arguments) {
  const std::string folder = std::string(arguments[1]) + "/";
  memories<float, simd::kLanes<float>, float, double, Half, BFloat16, std::int8_t, std::uint8_t, std::int16_t,
           std::uint16_t, std::int32_t, std::int64_t, bool, Float8E4M3FN, Int4>();
  memories<double, simd::kLanes<double>, float, double, Half, BFloat16, std::int8_t, std::uint8_t, std::int16_t,
           std::int32_t, std::int64_t, bool, Float8E5M2FNUZ>();
  memories<std::int32_t, simd::kLanes<std::int32_t>, std::int8_t, std::uint16_t, std::int32_t, std::int64_t, Half>();
  memories<std::int64_t, simd::kLanes<std::int64_t>, std::uint8_t, std::int32_t, std::int64_t>();
  memories<std::uint8_t, simd::kLanes<std::uint8_t>, std::uint8_t>();
  memories<std::int16_t, simd::kLanes<std::int16_t>, std::int16_t, std::int8_t>();
  memories<float, 2 * simd::kLanes<float>, float, Half, std::uint8_t>();
  memories<double, 2 * simd::kLanes<double>, float, BFloat16, std::int32_t>();
  memories<float, 4, Half, std::int8_t>();
  streams<float, BFloat16>();
  streams<float, Half>();
  streams<float, float>();
  streams<float, bool>();
  streams<float, std::int8_t>();
  streams<double, BFloat16>();
  streams<double, float>();
  streams<double, double>();
  pairs<float, BFloat16>();
  pairs<float, Half>();
  pairs<float, float>();
  pairs<double, BFloat16>();
  lanes<float>();
  lanes<double>();
  lanes<std::int32_t>();
  lanes<std::int64_t>();
  lanes<std::uint8_t>();
  lanes<std::int16_t>();
  lanes<float, 2>();
  lanes<float, 2 * simd::kLanes<float>>();
  whole<float>();
  whole<double>();
  whole<std::int32_t>();
  whole<std::uint8_t>();
  whole<std::int16_t>();
  whole<double, 2 * simd::kLanes<double>>();
  halves<Half>(folder, "Half");
  halves<BFloat16>(folder, "BFloat16");
  std::printf("%d bytes\n", simd::kBytes);
}
