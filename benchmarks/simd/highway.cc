// The kernels of benchmarks/simd.py with Highway, for the level of the compiler's flags.
#include <cstdint>

#include "hwy/highway.h"
// After highway.h.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T, typename F>
void Each(const T* x, T* y, std::int64_t count, F f) {
  const hn::ScalableTag<T> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + step <= count; i += step) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, y + i);
  if (i < count) {
    const auto mask = hn::FirstN(d, static_cast<std::size_t>(count - i));
    hn::BlendedStore(f(d, hn::MaskedLoad(mask, d, x + i)), mask, d, y + i);
  }
}

void EachHalf(const hwy::float16_t* x, hwy::float16_t* y, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto f = [&](auto v) { return hn::MulAdd(hn::PromoteTo(d, v), hn::Set(d, 1.5F), hn::Set(d, 0.25F)); };
  std::int64_t i = 0;
  for (; i + step <= count; i += step) hn::StoreU(hn::DemoteTo(half, f(hn::LoadU(half, x + i))), half, y + i);
  if (i < count) {
    hwy::float16_t rest[hn::MaxLanes(d)] = {};
    for (std::int64_t k = i; k < count; ++k) rest[k - i] = x[k];
    hn::StoreU(hn::DemoteTo(half, f(hn::LoadU(half, rest))), half, rest);
    for (std::int64_t k = i; k < count; ++k) y[k] = rest[k - i];
  }
}

void Sum(const float* x, float* y, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    a = hn::Add(a, hn::LoadU(d, x + i));
    b = hn::Add(b, hn::LoadU(d, x + i + step));
    c = hn::Add(c, hn::LoadU(d, x + i + 2 * step));
    e = hn::Add(e, hn::LoadU(d, x + i + 3 * step));
  }
  for (; i + step <= count; i += step) a = hn::Add(a, hn::LoadU(d, x + i));
  if (i < count) b = hn::Add(b, hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count - i)), d, x + i));
  *y = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

void Scale(const float* x, float* y, std::int64_t count) {
  Each(x, y, count, [](auto d, auto v) { return hn::MulAdd(v, hn::Set(d, 1.5F), hn::Set(d, 0.25F)); });
}

template <typename T>
void ExpOf(const T* x, T* y, std::int64_t count) {
  Each(x, y, count, [](auto d, auto v) { return hn::Exp(d, v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace kernels
HWY_AFTER_NAMESPACE();

namespace target = kernels::HWY_NAMESPACE;

extern "C" {
void sum(const float* x, float* y, std::int64_t count) {
  target::Sum(x, y, count);
}
void scale(const float* x, float* y, std::int64_t count) {
  target::Scale(x, y, count);
}
void scale_half(const hwy::float16_t* x, hwy::float16_t* y, std::int64_t count) {
  target::EachHalf(x, y, count);
}
void exp_float(const float* x, float* y, std::int64_t count) {
  target::ExpOf(x, y, count);
}
void exp_double(const double* x, double* y, std::int64_t count) {
  target::ExpOf(x, y, count);
}
}
