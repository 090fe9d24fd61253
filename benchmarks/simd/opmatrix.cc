// The kernels of benchmarks/simd.py with opmatrix/simd.h.
#include <cstdint>

#include "opmatrix/half.h"
#include "opmatrix/simd_math.h"

namespace simd = opmatrix::simd;

namespace {

template <typename T, typename S, typename F>
void each(const S* x, S* y, std::int64_t count, F f) {
  constexpr int kStep = simd::kLanes<T>;
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) simd::store(y + i, f(simd::load<T>(x + i)));
  if (i < count) simd::store_part(y + i, f(simd::load_part<T>(x + i, count - i)), count - i);
}

}  // namespace

extern "C" {
void sum(const float* x, float* y, std::int64_t count) {
  constexpr int kStep = simd::kLanes<float>;
  simd::Vec<float> a{}, b{}, c{}, d{};
  std::int64_t i = 0;
  for (; i + 4 * kStep <= count; i += 4 * kStep) {
    a += simd::load<float>(x + i);
    b += simd::load<float>(x + i + kStep);
    c += simd::load<float>(x + i + 2 * kStep);
    d += simd::load<float>(x + i + 3 * kStep);
  }
  for (; i + kStep <= count; i += kStep) a += simd::load<float>(x + i);
  if (i < count) b += simd::load_part<float>(x + i, count - i);
  *y = simd::sum((a + b) + (c + d));
}
void scale(const float* x, float* y, std::int64_t count) {
  each<float>(x, y, count, [](auto v) { return v * 1.5F + 0.25F; });
}
void scale_half(const opmatrix::Half* x, opmatrix::Half* y, std::int64_t count) {
  each<float>(x, y, count, [](auto v) { return v * 1.5F + 0.25F; });
}
void exp_float(const float* x, float* y, std::int64_t count) {
  each<float>(x, y, count, [](auto v) { return simd::exp(v); });
}
void exp_double(const double* x, double* y, std::int64_t count) {
  each<double>(x, y, count, [](auto v) { return simd::exp(v); });
}
}
