// exp, log, erf and tanh of vectors of float or double. NaN, infinities, signed zeros, subnormal numbers, overflow and
// underflow give what the functions of <cmath> give. A rounding mode other than to nearest gives less accurate results.
//
// The errors below are in ULP, the distance of two neighbouring numbers at the exact result: 0.5 is the best possible.
// They were measured with x86-64-v3 at all 2^32 floats and at 60 million doubles, with v2 at each 31st float and at 6
// million doubles. The tests measure fewer, at each level that the processor has. v4 gave the bits of v3 in an
// emulator, at each 2,003rd float and at a million doubles.
#pragma once

#include "opmatrix/simd.h"

namespace opmatrix::simd {

namespace detail {

/// Coefficients, the lowest degree first. Those of exp and erf are minimax polynomials that minimize the relative
/// error of the result (Lawson's algorithm, 50 digits), rounded; those of log are of FreeBSD's msun, e_logf.c and
/// e_log.c (Sun Microsystems, 1993).
template <typename T>
struct Constants {
  static_assert(kFloating<T>, "exp, log, erf and tanh take vectors of float or double");
};

template <>
struct Constants<float> {
  static constexpr int kFraction = 23;
  static constexpr float kLog2E = 1.44269504F;
  static constexpr float kLn2High = 0.693359375F;  // 9 bits: its product with an exponent is exact
  static constexpr float kLn2Low = -2.12194440e-4F;
  static constexpr float kExpMost = 89.0F, kExpLeast = -104.0F;  // beyond, exp is infinite or 0
  static constexpr float kExpNormal = 87.0F;                     // up to here, it is a normal number
  static constexpr float kRound = 12582912.0F;                   // 1.5 * 2^23: a sum with it is whole
  static constexpr float kExp[] = {0.49999994F, 0.16666521F, 0.04166848F, 0.008368672F, 0.0013809339F};  // 2^-28.3
  static constexpr float kLog[] = {0.66666662693F, 0.40000972152F, 0.28498786688F, 0.24279078841F};
  static constexpr float kErfNear[] = {0.12837917F,  -0.37612626F,    0.112835854F, -0.026853824F,
                                       0.005188356F, -0.00080104906F, 7.854967e-05F};
  static constexpr float kErfFar[] = {0.12869532F, 0.63496554F,    0.10653759F,   -0.024016F,
                                      0.00376037F, -0.0003513298F, 1.4039082e-05F};
  static constexpr float kErfOne = 3.95F;  // erf is 1 from here on
  static constexpr float kTanhOne = 9.5F;
};

template <>
struct Constants<double> {
  static constexpr int kFraction = 52;
  static constexpr double kLog2E = 1.4426950408889634;
  static constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits
  static constexpr double kLn2Low = 1.90821492927058770002e-10;
  static constexpr double kExpMost = 710.0, kExpLeast = -746.0, kExpNormal = 708.0;
  static constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr double kExp[] = {0.5000000000000011,    0.16666666666666424,    0.04166666666653031,
                                    0.008333333333486102,  0.0013888888943609685,  0.00019841269525138695,
                                    2.480149311778523e-05, 2.7557569731166098e-06, 2.763024041358169e-07,
                                    2.500529116982393e-08};
  static constexpr double kLog[] = {6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01,
                                    2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01,
                                    1.479819860511658591e-01};
  static constexpr double kErfNear[] = {0.12837916709551256,    -0.3761263890318352,     0.11283791670944175,
                                        -0.026866170643111413,  0.005223977606126935,    -0.0008548325930046657,
                                        0.00012055293606377939, -1.4924712982518353e-05, 1.6447141081978485e-06,
                                        -1.620639337781001e-07, 1.3711348189803712e-08,  -7.780189925494642e-10};
  static constexpr double kErfFar[] = {0.1283788579948972,      0.6366226312966663,     0.10276044001159208,
                                       -0.019097005404425025,   -0.0002639816831016087, 0.001763284202431426,
                                       -0.0006475680660453438,  5.7264352465657056e-05, 5.902261373177326e-05,
                                       -3.8043344724114164e-05, 1.3352011550953895e-05, -3.2518611735063756e-06,
                                       5.748324660271565e-07,   -7.305161368527279e-08, 6.36069791727481e-09,
                                       -3.4063814564660097e-10, 8.470235563252199e-12};
  static constexpr double kErfOne = 5.95;
  static constexpr double kTanhOne = 19.5;
};

template <typename V>
using Ints = Vec<Int<Lane<V>>, kCount<V>>;

template <typename V>
[[gnu::always_inline]] inline V all_of(Lane<V> value) {
  return value - V{};
}

/// The polynomial with the coefficients, at x.
template <typename V, int N, int... I>
[[gnu::always_inline]] inline V polynomial(V x, const Lane<V> (&of)[N], Indices<int, I...>) {
  V found = all_of<V>(of[N - 1]);
  ((found = fma(found, x, all_of<V>(of[N - 2 - I]))), ...);
  return found;
}
template <typename V, int N>
[[gnu::always_inline]] inline V polynomial(V x, const Lane<V> (&of)[N]) {
  return polynomial(x, of, UpTo<N - 1>{});
}

/// x with the sign of `of`.
template <typename V>
[[gnu::always_inline]] inline V with_sign(V x, V of) {
  const Ints<V> sign = all_of<Ints<V>>(static_cast<Int<Lane<V>>>(std::uint64_t{1} << (8 * sizeof(Lane<V>) - 1)));
  return (V)(((Ints<V>)x & ~sign) | ((Ints<V>)of & sign));
}

/// e^x as (1 + high + low) * 2^exponent, for x at which that is neither too great nor too small.
template <typename V>
struct Exponential {
  V high, low;
  V exponent;  // whole
};

/// W. Cody, W. Waite, Software Manual for the Elementary Functions, 1980, chapter 6: x = n * ln 2 + r, |r| <= ln 2 / 2,
/// and e^r - 1 = r + r^2 * polynomial(r). `n` is x / ln 2, rounded.
template <typename V>
[[gnu::always_inline]] inline Exponential<V> exponential(V x, V n) {
  using C = Constants<Lane<V>>;
  const V first = fma(n, all_of<V>(-C::kLn2High), x);  // exact
  const V second = n * C::kLn2Low;
  const V r = first - second;
  const V rest = (first - r) - second;
  const V square = r * r;
  const V more = fma(square, polynomial(r, C::kExp), rest);
  const V high = r + more;
  return {high, more - (high - r), n};
}
template <typename V>
[[gnu::always_inline]] inline Exponential<V> exponential(V x) {
  return exponential(x, round_even(x * Constants<Lane<V>>::kLog2E));
}

/// 2^n for whole n of a normal number.
template <typename V>
[[gnu::always_inline]] inline V power_of_two(V n) {
  using C = Constants<Lane<V>>;
  constexpr auto kBias = static_cast<Lane<V>>(sizeof(Lane<V>) == 4 ? 127 : 1023);
  // The sum has n in the last bits of its fraction: no conversion to integers, which AVX2 lacks for double.
  constexpr auto kShift = static_cast<Lane<V>>(sizeof(Lane<V>) == 4 ? 8388608.0 : 4503599627370496.0);
  return (V)((Ints<V>)(n + (kBias + kShift)) << C::kFraction);
}

}  // namespace detail

/// e^x. At most 0.90 ULP for float, 0.92 for double; x86-64-v2: 0.90 and 0.92.
template <typename V>
[[gnu::always_inline]] inline V exp(V x) {
  using C = detail::Constants<detail::Lane<V>>;
  using T = detail::Lane<V>;
  const V shifted = fma(x, detail::all_of<V>(C::kLog2E), detail::all_of<V>(C::kRound));
  const V n = shifted - C::kRound;
  const V fraction = 1 + detail::exponential(x, n).high;
  // The last bits of `shifted` are n: the exponent of a normal result is n more.
  const V normal = (V)((detail::Ints<V>)fraction + ((detail::Ints<V>)shifted << C::kFraction));
  if (all(abs(x) < C::kExpNormal)) return normal;
  // Two factors, because 2^n may be subnormal or too great where the result is not.
  const V half = floor(n * T(0.5));
  const V found = fraction * detail::power_of_two(half) * detail::power_of_two(n - half);
  const V most = select(x > C::kExpMost, detail::all_of<V>(static_cast<T>(__builtin_inf())), found);
  return select(x < C::kExpLeast, V{}, most);
}

/// The natural logarithm: -infinity at 0, NaN below. At most 0.83 ULP for float, 0.83 for double; x86-64-v2: 0.83 and
/// 0.83.
template <typename V>
[[gnu::always_inline]] inline V log(V x) {
  using T = detail::Lane<V>;
  using C = detail::Constants<T>;
  using U = detail::Positive<T>;
  using Bits = Vec<U, detail::kCount<V>>;
  constexpr bool kDouble = sizeof(T) == 8;
  constexpr T kScale = static_cast<T>(kDouble ? 18014398509481984.0 : 33554432.0);  // 2^54, 2^25
  constexpr T kLeast = static_cast<T>(kDouble ? 2.2250738585072014e-308 : 1.1754943508222875e-38);
  constexpr U kSqrtHalf = static_cast<U>(kDouble ? 0x3FE6A09E667F3BCD : 0x3F3504F3);
  constexpr U kOne = static_cast<U>(kDouble ? 0x3FF0000000000000 : 0x3F800000);
  const auto small = x < kLeast;
  // x = 2^k * m with m from sqrt(1/2) on, below sqrt(2).
  const Bits above = (Bits)select(small, x * kScale, x) + (kOne - kSqrtHalf);
  const V m = (V)((above & ((U{1} << C::kFraction) - 1)) + kSqrtHalf);
  // The exponent becomes the last bits of a large number: AVX2 converts no integers to double.
  constexpr T kShift = static_cast<T>(kDouble ? 4503599627370496.0 : 8388608.0);
  V k = (V)((above >> C::kFraction) | (Bits)detail::all_of<V>(kShift)) - (kShift + (kDouble ? 1023 : 127));
  k -= select(small, detail::all_of<V>(static_cast<T>(kDouble ? 54 : 25)), V{});
  const V f = m - 1;
  const V s = f / (f + 2);
  const V z = s * s;
  const V more = z * detail::polynomial(z, C::kLog);
  const V half = f * f * T(0.5);
  const V low = fma(k, detail::all_of<V>(C::kLn2Low), s * (half + more));
  const V found = fma(k, detail::all_of<V>(C::kLn2High), f - (half - low));
  constexpr T kInfinity = static_cast<T>(__builtin_inf());
  const V special = select(x == 0, detail::all_of<V>(-kInfinity), detail::all_of<V>(static_cast<T>(__builtin_nan(""))));
  const V positive = select(x == kInfinity, x, found);
  return select(x > 0, positive, special);
}

/// The error function. At most 1.06 ULP for float, 1.20 for double; x86-64-v2: 1.25 and 1.50.
template <typename V>
[[gnu::always_inline]] inline V erf(V x) {
  using C = detail::Constants<detail::Lane<V>>;
  const V size = abs(x);
  // Near 0, erf(x) = x + x * polynomial(x^2).
  const V near = fma(x, detail::polynomial(x * x, C::kErfNear), x);
  // Beyond 1, erf(x) = 1 - e^-(x + x * polynomial(x)). (N. Juffa)
  const V t = min(detail::all_of<V>(C::kErfOne), size);  // a NaN stays
  const auto parts = detail::exponential(-fma(t, detail::polynomial(t, C::kErfFar), t));
  const V far = 1 - (1 + parts.high) * detail::power_of_two(parts.exponent);
  return select(size < 1, near, detail::with_sign(far, x));
}

/// The hyperbolic tangent. At most 1.37 ULP for float, 1.36 for double; x86-64-v2: 1.45 and 1.36.
template <typename V>
[[gnu::always_inline]] inline V tanh(V x) {
  using T = detail::Lane<V>;
  using C = detail::Constants<T>;
  // (e^2x - 1) / (e^2x + 1) with e^2x - 1 as a sum of two numbers, whose rounding errors a second division corrects.
  const V size = min(detail::all_of<V>(C::kTanhOne), abs(x));  // a NaN stays
  const auto parts = detail::exponential(size + size);
  const V scale = detail::power_of_two(parts.exponent);
  const V whole = scale - 1;
  const V fraction = scale * parts.high;
  const V above = whole + fraction;
  const V rest = fma(scale, parts.low, fraction - (above - whole));
  const V below = above + 2;
  const V lost = above - (below - 2) + rest;
  const V found = above / below;
  const V exact = found + (rest - found * lost) / below;
  return detail::with_sign(exact, x);
}

}  // namespace opmatrix::simd
