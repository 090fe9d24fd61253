// The kernels of benchmarks/simd.py with xsimd 8, for the level of the compiler's flags. xsimd has no float16.
#include <cstdint>
#include <xsimd/xsimd.hpp>

namespace {

template <typename T, typename F>
void each(const T* x, T* y, std::int64_t count, F f) {
  using V = xsimd::batch<T>;
  constexpr auto kStep = static_cast<std::int64_t>(V::size);
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) f(V::load_unaligned(x + i)).store_unaligned(y + i);
  if (i < count) {
    T rest[V::size] = {};
    for (std::int64_t k = i; k < count; ++k) rest[k - i] = x[k];
    f(V::load_unaligned(rest)).store_unaligned(rest);
    for (std::int64_t k = i; k < count; ++k) y[k] = rest[k - i];
  }
}

}  // namespace

extern "C" {
void sum(const float* x, float* y, std::int64_t count) {
  using V = xsimd::batch<float>;
  constexpr auto kStep = static_cast<std::int64_t>(V::size);
  V a(0.0F), b(0.0F), c(0.0F), d(0.0F);
  std::int64_t i = 0;
  for (; i + 4 * kStep <= count; i += 4 * kStep) {
    a += V::load_unaligned(x + i);
    b += V::load_unaligned(x + i + kStep);
    c += V::load_unaligned(x + i + 2 * kStep);
    d += V::load_unaligned(x + i + 3 * kStep);
  }
  for (; i + kStep <= count; i += kStep) a += V::load_unaligned(x + i);
  float rest = 0;
  for (; i < count; ++i) rest += x[i];
  *y = rest + xsimd::hadd((a + b) + (c + d));
}
void scale(const float* x, float* y, std::int64_t count) {
  each(x, y, count, [](auto v) { return xsimd::fma(v, decltype(v)(1.5F), decltype(v)(0.25F)); });
}
void exp_float(const float* x, float* y, std::int64_t count) {
  each(x, y, count, [](auto v) { return xsimd::exp(v); });
}
void exp_double(const double* x, double* y, std::int64_t count) {
  each(x, y, count, [](auto v) { return xsimd::exp(v); });
}
}
