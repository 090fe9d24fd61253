// The kernels of benchmarks/simd.py as loops, which the compiler may turn into vectors.
#include <cmath>
#include <cstdint>

#include "opmatrix/half.h"

namespace {

template <typename S, typename F>
void each(const S* x, S* y, std::int64_t count, F f) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<S>(f(x[i]));
}

}  // namespace

extern "C" {
void sum(const float* x, float* y, std::int64_t count) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i];
  *y = sum;
}
void scale(const float* x, float* y, std::int64_t count) {
  each(x, y, count, [](float v) { return v * 1.5F + 0.25F; });
}
void scale_half(const opmatrix::Half* x, opmatrix::Half* y, std::int64_t count) {
  each(x, y, count, [](float v) { return v * 1.5F + 0.25F; });
}
void exp_float(const float* x, float* y, std::int64_t count) {
  each(x, y, count, [](float v) { return std::exp(v); });
}
void exp_double(const double* x, double* y, std::int64_t count) {
  each(x, y, count, [](double v) { return std::exp(v); });
}
}
