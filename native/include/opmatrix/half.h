// float16 and bfloat16: types of two bytes that store a number. A kernel computes in float and rounds what it stores.
#pragma once

#include <cstdint>
#include <limits>

namespace opmatrix {

namespace detail {

constexpr std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

using Float = float;  // tree-sitter-cpp, which reads this file, accepts no keyword as an argument

constexpr float float_of(std::uint32_t bits) {
  return __builtin_bit_cast(Float, bits);
}

/// Rounds to a neighbouring float, to the one with an odd last bit unless `value` is a float: a type of two bytes that
/// this is then rounded to is the nearest to `value`.
constexpr float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const double found = static_cast<double>(nearest);
  const std::uint32_t bits = bits_of(nearest);
  if (found == value || value != value || (bits & 1) != 0) return nearest;
  return float_of((found > value) == (value > 0) ? bits - 1 : bits + 1);
}

/// The right side of an operator that assigns: a double as it is, any other number as a float.
constexpr double operand(double value) {
  return value;
}
template <typename Number>
constexpr float operand(Number value) {
  return static_cast<float>(value);
}

}  // namespace detail

/// A float16 of IEEE 754: 5 bits of exponent, 10 of fraction; the greatest is 65504.
///
/// It converts to float by itself, so that arithmetic and comparisons are those of float. To it only a cast converts,
/// `static_cast<T>(sum)`, which rounds once to the nearest, ties to even: also from double. NaN stays NaN, and what is
/// too great becomes infinite.
class Half {
 public:
  /// The size of a value.
  static constexpr int kBits = 16;

  /// Without a value, as a float; `Half{}` is 0.
  Half() = default;
  /// Rounds a number once, also a double.
  constexpr explicit Half(float value) : bits_(rounded(detail::bits_of(value))) {}
  constexpr explicit Half(double value) : Half(detail::rounded_to_odd(value)) {}
  template <typename Number>
  constexpr explicit Half(Number value) : Half(static_cast<double>(value)) {}

  /// The same value.
  constexpr operator float() const {
    const std::uint32_t size = bits_ & 0x7FFFU;
    const std::uint32_t shifted = (size << 13) + 0x38000000U;
    // Computed without a branch and without a subnormal float, which some threads flush to 0.
    const std::uint32_t small = detail::bits_of(detail::float_of(size | 0x3F000000U) - 0.5F);
    const std::uint32_t large = size >= 0x7C00U ? shifted + 0x38000000U : shifted;
    const std::uint32_t sign = static_cast<std::uint32_t>(bits_ & 0x8000U) << 16;
    return detail::float_of(sign | (size < 0x400U ? small : large));
  }

  /// Computes in float, in double with a double, and rounds the result once. A sum of many values loses less in
  /// `compute_t<T>`, which is rounded only at the end.
  template <typename Number>
  constexpr Half& operator+=(Number other) {
    return *this = Half(static_cast<float>(*this) + detail::operand(other));
  }
  template <typename Number>
  constexpr Half& operator-=(Number other) {
    return *this = Half(static_cast<float>(*this) - detail::operand(other));
  }
  template <typename Number>
  constexpr Half& operator*=(Number other) {
    return *this = Half(static_cast<float>(*this) * detail::operand(other));
  }
  template <typename Number>
  constexpr Half& operator/=(Number other) {
    return *this = Half(static_cast<float>(*this) / detail::operand(other));
  }

  /// The number with the given bits.
  static constexpr Half of_bits(std::uint16_t bits) {
    Half made{};
    made.bits_ = bits;
    return made;
  }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t bits) {
    const std::uint32_t size = bits & 0x7FFFFFFFU;
    const std::uint32_t nan = 0x7E00U | (size >> 13 & 0x3FFU);
    const std::uint32_t small = detail::bits_of(detail::float_of(size) + 0.5F) - 0x3F000000U;  // the sum rounds
    const std::uint32_t nearest = (size - 0x38000000U + 0xFFFU + (size >> 13 & 1U)) >> 13;
    const std::uint32_t large = nearest > 0x7C00U ? 0x7C00U : nearest;
    const std::uint32_t found = size > 0x7F800000U ? nan : size < 0x38800000U ? small : large;
    return static_cast<std::uint16_t>(found | (bits >> 16 & 0x8000U));
  }

  std::uint16_t bits_;
};

/// A bfloat16: the first 16 bits of a float, with its range and 7 bits of fraction. Converts as `Half` does.
class BFloat16 {
 public:
  /// The size of a value.
  static constexpr int kBits = 16;

  /// Without a value, as a float; `BFloat16{}` is 0.
  BFloat16() = default;
  /// Rounds a number once, also a double.
  constexpr explicit BFloat16(float value) : bits_(rounded(detail::bits_of(value))) {}
  constexpr explicit BFloat16(double value) : BFloat16(detail::rounded_to_odd(value)) {}
  template <typename Number>
  constexpr explicit BFloat16(Number value) : BFloat16(static_cast<double>(value)) {}

  /// The same value.
  constexpr operator float() const { return detail::float_of(static_cast<std::uint32_t>(bits_) << 16); }

  /// Computes in float, in double with a double, and rounds the result once. A sum of many values loses less in
  /// `compute_t<T>`, which is rounded only at the end.
  template <typename Number>
  constexpr BFloat16& operator+=(Number other) {
    return *this = BFloat16(static_cast<float>(*this) + detail::operand(other));
  }
  template <typename Number>
  constexpr BFloat16& operator-=(Number other) {
    return *this = BFloat16(static_cast<float>(*this) - detail::operand(other));
  }
  template <typename Number>
  constexpr BFloat16& operator*=(Number other) {
    return *this = BFloat16(static_cast<float>(*this) * detail::operand(other));
  }
  template <typename Number>
  constexpr BFloat16& operator/=(Number other) {
    return *this = BFloat16(static_cast<float>(*this) / detail::operand(other));
  }

  /// The number with the given bits.
  static constexpr BFloat16 of_bits(std::uint16_t bits) {
    BFloat16 made{};
    made.bits_ = bits;
    return made;
  }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t bits) {
    const std::uint32_t nearest = bits + 0x7FFFU + (bits >> 16 & 1U);
    const std::uint32_t found = (bits & 0x7FFFFFFFU) > 0x7F800000U ? bits | 0x400000U : nearest;
    return static_cast<std::uint16_t>(found >> 16);
  }

  std::uint16_t bits_;
};

namespace detail {
template <typename T>
struct Compute {
  using type = T;
};
template <>
struct Compute<Half> {
  using type = float;
};
template <>
struct Compute<BFloat16> {
  using type = float;
};
}  // namespace detail

/// The type in which a kernel computes with values of T: float for Half and BFloat16, else T.
///
///     compute_t<T> sum = 0;
///     for (std::int64_t i = 0; i < count; ++i) sum += x[i];
///     y[0] = static_cast<T>(sum);
template <typename T>
using compute_t = typename detail::Compute<T>::type;

}  // namespace opmatrix

/// The limits of Half. Without these, std::numeric_limits would have 0 for each.
template <>
struct std::numeric_limits<opmatrix::Half> : public std::numeric_limits<float> {
  /// As for float; the members that are not here are those of float.
  using Half = opmatrix::Half;
  static constexpr int digits = 11, digits10 = 3, max_digits10 = 5;
  static constexpr int min_exponent = -13, min_exponent10 = -4, max_exponent = 16, max_exponent10 = 4;
  static constexpr Half min() noexcept { return Half::of_bits(0x0400); }
  static constexpr Half max() noexcept { return Half::of_bits(0x7BFF); }
  static constexpr Half lowest() noexcept { return Half::of_bits(0xFBFF); }
  static constexpr Half epsilon() noexcept { return Half::of_bits(0x1400); }
  static constexpr Half round_error() noexcept { return Half(0.5F); }
  static constexpr Half infinity() noexcept { return Half::of_bits(0x7C00); }
  static constexpr Half quiet_NaN() noexcept { return Half::of_bits(0x7E00); }
  static constexpr Half signaling_NaN() noexcept { return Half::of_bits(0x7D00); }
  static constexpr Half denorm_min() noexcept { return Half::of_bits(0x0001); }
};

/// The limits of BFloat16.
template <>
struct std::numeric_limits<opmatrix::BFloat16> : public std::numeric_limits<float> {
  /// As for float; the members that are not here are those of float.
  using BFloat16 = opmatrix::BFloat16;
  static constexpr int digits = 8, digits10 = 2, max_digits10 = 4;
  static constexpr BFloat16 min() noexcept { return BFloat16::of_bits(0x0080); }
  static constexpr BFloat16 max() noexcept { return BFloat16::of_bits(0x7F7F); }
  static constexpr BFloat16 lowest() noexcept { return BFloat16::of_bits(0xFF7F); }
  static constexpr BFloat16 epsilon() noexcept { return BFloat16::of_bits(0x3C00); }
  static constexpr BFloat16 round_error() noexcept { return BFloat16(0.5F); }
  static constexpr BFloat16 infinity() noexcept { return BFloat16::of_bits(0x7F80); }
  static constexpr BFloat16 quiet_NaN() noexcept { return BFloat16::of_bits(0x7FC0); }
  static constexpr BFloat16 signaling_NaN() noexcept { return BFloat16::of_bits(0x7FA0); }
  static constexpr BFloat16 denorm_min() noexcept { return BFloat16::of_bits(0x0001); }
};
