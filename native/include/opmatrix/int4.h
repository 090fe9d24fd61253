// int4 and uint4 of ONNX. A kernel has each as a byte; ONNX stores two in a byte, which bindings take apart.
#pragma once

#include <cstdint>
#include <limits>

#include "opmatrix/half.h"

namespace opmatrix {

/// A number of four bits: -8 to 7, or 0 to 15 where it is not `kSigned`.
///
/// It converts to int by itself, so that arithmetic and comparisons are those of int. To it only a cast converts,
/// `static_cast<T>(sum)`, which keeps the low four bits, as ONNX's Cast does: 8 becomes -8 in Int4. A float loses its
/// fraction first. A kernel that saturates clamps the number first, to `std::numeric_limits<T>::lowest()` and `max()`.
template <bool kSigned>
class FourBits {
 public:
  /// The size of a value; a kernel has it in a byte.
  static constexpr int kBits = 4;

  /// Without a value, as an int; `Int4{}` is 0.
  FourBits() = default;
  /// Keeps the low four bits of a whole number, also of the whole part of a float.
  template <typename Number>
  constexpr explicit FourBits(Number value)
      : byte_(static_cast<std::int8_t>(number(static_cast<unsigned>(static_cast<std::int64_t>(value))))) {}

  /// The same value.
  constexpr operator int() const { return number(static_cast<unsigned>(byte_)); }

 private:
  /// The value of four bits; the bits before them do not count.
  static constexpr int number(unsigned bits) {
    const int low = static_cast<int>(bits & 15U);
    return kSigned ? (low ^ 8) - 8 : low;
  }

  std::int8_t byte_;
};

/// From -8 to 7.
using Int4 = FourBits<true>;
/// From 0 to 15.
using UInt4 = FourBits<false>;

namespace detail {
template <bool kSigned>
struct Compute<FourBits<kSigned>> {
  using type = int;
};
}  // namespace detail

}  // namespace opmatrix

/// The limits of an Int4 or UInt4.
template <bool kSigned>
struct std::numeric_limits<opmatrix::FourBits<kSigned>> : public std::numeric_limits<std::int8_t> {
  /// As for int8; the members that are not here are those of int8.
  using Type = opmatrix::FourBits<kSigned>;
  static constexpr bool is_signed = kSigned, is_modulo = true;
  static constexpr int digits = kSigned ? 3 : 4, digits10 = kSigned ? 0 : 1;
  static constexpr Type min() noexcept { return Type(kSigned ? -8 : 0); }
  static constexpr Type max() noexcept { return Type(kSigned ? 7 : 15); }
  static constexpr Type lowest() noexcept { return min(); }
  static constexpr Type epsilon() noexcept { return Type(0); }
  static constexpr Type round_error() noexcept { return Type(0); }
  static constexpr Type infinity() noexcept { return Type(0); }
  static constexpr Type quiet_NaN() noexcept { return Type(0); }
  static constexpr Type signaling_NaN() noexcept { return Type(0); }
  static constexpr Type denorm_min() noexcept { return Type(0); }
};
