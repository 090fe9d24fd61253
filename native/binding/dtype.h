// The dtypes of the declaration, as bindings compare and name them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>

#include "kernel_error.h"

namespace opmatrix {

enum class DType {
  float16,
  bfloat16,
  float32,
  float64,
  float8_e4m3fn,
  float8_e5m2,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  int4,
  uint4,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,
  complex64,
  complex128,
  string,
  other
};

constexpr const char* name(DType dtype) {
  constexpr const char* names[] = {"float16",     "bfloat16",        "float32",         "float64", "float8_e4m3fn",
                                   "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int4",    "uint4",
                                   "int8",        "int16",           "int32",           "int64",   "uint8",
                                   "uint16",      "uint32",          "uint64",          "bool",    "complex64",
                                   "complex128",  "string",          "another dtype"};
  return names[static_cast<int>(dtype)];
}

class Half;  // opmatrix/half.h, which only the operators that use them include
class BFloat16;
template <int kFraction, bool kFnuz>
class Float8;  // opmatrix/float8.h, likewise
template <bool kSigned>
class FourBits;  // opmatrix/int4.h, likewise

/// The dtype of a C++ type.
template <typename T>
inline constexpr DType dtype_of = DType::other;
template <>
inline constexpr DType dtype_of<Half> = DType::float16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<Float8<3, false>> = DType::float8_e4m3fn;
template <>
inline constexpr DType dtype_of<Float8<2, false>> = DType::float8_e5m2;
template <>
inline constexpr DType dtype_of<Float8<3, true>> = DType::float8_e4m3fnuz;
template <>
inline constexpr DType dtype_of<Float8<2, true>> = DType::float8_e5m2fnuz;
template <>
inline constexpr DType dtype_of<FourBits<true>> = DType::int4;
template <>
inline constexpr DType dtype_of<FourBits<false>> = DType::uint4;
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::int8;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::int16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::uint16;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::uint32;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::uint64;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

[[noreturn, gnu::cold]] inline void fail_dtype(const char* op, const char* argument, DType found,
                                               std::initializer_list<DType> allowed) {
  char list[240] = "";
  int length = 0;
  for (const DType& dtype : allowed) {
    const char* separator = &dtype == allowed.begin() ? "" : &dtype + 1 == allowed.end() ? " or " : ", ";
    length +=
        std::snprintf(list + length, sizeof list - static_cast<std::size_t>(length), "%s%s", separator, name(dtype));
  }
  throw Error{op, ": ", argument, " must be ", list, ", got ", name(found)};
}

/// Throws unless `found` is one of `allowed`: "group_norm: x must be float32 or float64, got int64".
inline void check_dtype(const char* op, const char* argument, DType found, std::initializer_list<DType> allowed) {
  for (const DType dtype : allowed) {
    if (dtype == found) return;
  }
  fail_dtype(op, argument, found, allowed);
}

/// Throws unless `found` is the dtype that an earlier argument of the same type variable has.
inline void check_same_dtype(const char* op, const char* argument, DType found, const char* other, DType expected) {
  KERNEL_CHECK(found == expected, op, ": ", argument, " must be ", name(expected), " as ", other, " is, got ",
               name(found));
}

}  // namespace opmatrix
