// The four float8 of ONNX: types of one byte that store a number. A kernel computes in float and rounds what it stores.
#pragma once

#include <cstdint>
#include <limits>

#include "opmatrix/half.h"

namespace opmatrix {

/// A float8 with `kFraction` bits of fraction and 7 - `kFraction` of exponent; `kFnuz`: with a bias that is 1 greater,
/// without infinities, and with one zero: the bits of -0 are NaN.
///
/// It converts to float by itself, so that arithmetic and comparisons are those of float. To it only a cast converts,
/// `static_cast<T>(sum)`, which rounds once to the nearest, ties to even: also from double. It does not saturate: what
/// is too great becomes infinite in Float8E5M2 and NaN in the other three, as in torch and in ml_dtypes. A kernel that
/// saturates clamps the float first, to `std::numeric_limits<T>::lowest()` and `max()`.
template <int kFraction, bool kFnuz>
class Float8 {
  static constexpr int kBias = (1 << (6 - kFraction)) - (kFnuz ? 0 : 1);
  static constexpr int kShift = 23 - kFraction;  // from its fraction to that of a float
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
  static constexpr std::uint32_t kNormal = kRebias + (1U << 23);  // the bits of its smallest normal number as a float
  static constexpr std::uint32_t kOne = 1U << kFraction;          // its smallest normal number
  static constexpr bool kInfinite = kFraction == 2 && !kFnuz;
  static constexpr std::uint32_t kMost = kFnuz ? 0x7FU : kInfinite ? 0x7BU : 0x7EU;
  static constexpr std::uint32_t kNaN = kFnuz ? 0x80U : 0x7FU;
  static constexpr std::uint32_t kBeyond = kInfinite ? 0x7CU : kNaN;  // what is too great becomes

 public:
  /// The size of a value.
  static constexpr int kBits = 8;

  /// Without a value, as a float; `Float8E4M3FN{}` is 0.
  Float8() = default;
  /// Rounds a number once, also a double.
  constexpr explicit Float8(float value) : bits_(rounded(detail::bits_of(value))) {}
  constexpr explicit Float8(double value) : Float8(detail::rounded_to_odd(value)) {}
  template <typename Number>
  constexpr explicit Float8(Number value) : Float8(static_cast<double>(value)) {}

  /// The same value.
  constexpr operator float() const {
    const std::uint32_t size = bits_ & 0x7FU;
    const std::uint32_t sign = static_cast<std::uint32_t>(bits_ & 0x80U) << 24;
    if (kFnuz ? bits_ == kNaN : size > kMost)
      return detail::float_of(kFnuz ? 0x7FC00000U : sign | (size == kBeyond ? kTooGreat : 0x7FC00000U));
    // Its subnormal numbers are whole multiples of the smallest one, and normal numbers of a float.
    if (size < kOne) return detail::float_of(sign | detail::bits_of(static_cast<float>(size) * kSmallest));
    return detail::float_of(sign | ((size << kShift) + kRebias));
  }

  /// The number with the given bits.
  static constexpr Float8 of_bits(std::uint8_t bits) {
    Float8 made{};
    made.bits_ = bits;
    return made;
  }

 private:
  static constexpr std::uint32_t kTooGreat = kInfinite ? 0x7F800000U : 0x7FC00000U;
  static constexpr float kSmallest = detail::float_of(kNormal - (static_cast<std::uint32_t>(kFraction) << 23));

  static constexpr std::uint8_t rounded(std::uint32_t bits) {
    const std::uint32_t size = bits & 0x7FFFFFFFU;
    const std::uint32_t sign = bits >> 24 & 0x80U;
    if (size > 0x7F800000U) return static_cast<std::uint8_t>(kFnuz ? kNaN : sign | kNaN);
    std::uint32_t found = 0;
    if (size < kNormal) {  // the sum rounds to a multiple of the smallest number
      constexpr float kUnit = kSmallest * 8388608.0F;
      found = detail::bits_of(detail::float_of(size) + kUnit) - detail::bits_of(kUnit);
    } else {
      found = (size - kRebias + ((1U << (kShift - 1)) - 1) + (size >> kShift & 1U)) >> kShift;
    }
    if (found > kMost) found = kBeyond;
    return static_cast<std::uint8_t>(kFnuz && (found == 0 || found == kNaN) ? found : sign | found);
  }

  std::uint8_t bits_;
};

/// 4 bits of exponent, 3 of fraction: the greatest is 448. It has NaN and no infinities.
using Float8E4M3FN = Float8<3, false>;
/// 5 bits of exponent, 2 of fraction, as IEEE 754 would have it: the greatest is 57344. It has NaN and infinities.
using Float8E5M2 = Float8<2, false>;
/// 4 bits of exponent, 3 of fraction: the greatest is 240. It has one NaN, no infinities and one zero.
using Float8E4M3FNUZ = Float8<3, true>;
/// 5 bits of exponent, 2 of fraction: the greatest is 57344. It has one NaN, no infinities and one zero.
using Float8E5M2FNUZ = Float8<2, true>;

namespace detail {
template <int kFraction, bool kFnuz>
struct Compute<Float8<kFraction, kFnuz>> {
  using type = float;
};
}  // namespace detail

}  // namespace opmatrix

/// The limits of a Float8. `infinity()` of one without infinities is NaN, and `has_infinity` is false.
template <int kFraction, bool kFnuz>
struct std::numeric_limits<opmatrix::Float8<kFraction, kFnuz>> : public std::numeric_limits<float> {
  /// As for float; the members that are not here are those of float.
  using Type = opmatrix::Float8<kFraction, kFnuz>;
  static constexpr bool has_infinity = kFraction == 2 && !kFnuz, is_iec559 = has_infinity;
  static constexpr bool has_signaling_NaN = has_infinity;
  static constexpr int digits = kFraction + 1, digits10 = 0, max_digits10 = kFraction;
  static constexpr int min_exponent = (kFraction == 2 ? -13 : -5) - (kFnuz ? 1 : 0);
  static constexpr int min_exponent10 = kFraction == 2 ? -4 : kFnuz ? -2 : -1;
  static constexpr int max_exponent = kFraction == 2 ? 16 : kFnuz ? 8 : 9;
  static constexpr int max_exponent10 = kFraction == 2 ? 4 : 2;
  static constexpr Type min() noexcept { return Type::of_bits(1U << kFraction); }
  static constexpr Type max() noexcept { return Type::of_bits(kFnuz ? 0x7F : has_infinity ? 0x7B : 0x7E); }
  static constexpr Type lowest() noexcept { return Type::of_bits(kFnuz ? 0xFF : has_infinity ? 0xFB : 0xFE); }
  static constexpr Type epsilon() noexcept { return Type(1.0F / (1 << kFraction)); }
  static constexpr Type round_error() noexcept { return Type(0.5F); }
  static constexpr Type infinity() noexcept { return Type::of_bits(kFnuz ? 0x80 : has_infinity ? 0x7C : 0x7F); }
  static constexpr Type quiet_NaN() noexcept { return Type::of_bits(kFnuz ? 0x80 : 0x7F); }
  static constexpr Type signaling_NaN() noexcept { return has_infinity ? Type::of_bits(0x7D) : quiet_NaN(); }
  static constexpr Type denorm_min() noexcept { return Type::of_bits(0x01); }
};
