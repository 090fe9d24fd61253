// Blocks of 32 numbers of the last axis as float8_e4m3fn with a common scale, a power of two.
//
//   output = float8(x / 2**e),  2**e the least power of two that is not below max |x| / 448
//
// OCP Microscaling Formats (MX) Specification 1.0, 2023; the details are those of TransformerEngine, Apache-2.0.
//
// Shapes   tensor and output (..., K), scale_inv (R, B): R is the number of rows and B that of blocks in a row, rounded
//          up to multiples of 128 and 4. The last block of a row may be shorter. scale_inv holds e + 127, 0 beyond the
//          blocks.
// Numbers  Computed in float. Ties to even. e is at least -127.
// NaN      Becomes 0x7f and does not count in the maximum. An infinity makes e 127, and becomes 448 with its sign.
// Aliasing No output overlaps the input.
#pragma once

#include <cstdint>
#include <cstring>

#include "opmatrix/half.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::mxfp8_quantize {

constexpr std::int64_t kBlock = 32;

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// The exponent of the least power of two that is not below `scale`, plus 127, from 0 to 254.
inline std::uint32_t exponent_above(float scale) {
  const std::uint32_t bits = bits_of(scale);
  const std::uint32_t exponent = bits >> 23;
  const std::uint32_t fraction = bits & 0x7FFFFF;
  if (exponent >= 254) return 254;
  if (exponent == 0) return fraction > 0x400000 ? 1 : 0;
  return exponent + (fraction > 0 ? 1 : 0);
}

/// The bits of the nearest float8_e4m3fn: 448 for what is greater.
inline std::uint8_t to_float8(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 24 & 0x80;
  const std::uint32_t size = bits & 0x7FFFFFFF;
  if (size > 0x7F800000) return 0x7F;
  if (size >= bits_of(448.0F)) return static_cast<std::uint8_t>(sign | 0x7E);
  if (size < bits_of(0x1p-6F)) {  // subnormal: a multiple of 2**-9, to which this sum rounds
    return static_cast<std::uint8_t>(sign | (bits_of(float_of(size) + 0x1p14F) - bits_of(0x1p14F)));
  }
  const std::uint32_t nearest = (size + 0x7FFFF + (size >> 20 & 1)) >> 20;
  return static_cast<std::uint8_t>(sign | (nearest - (120U << 3)));  // the bias is 7, and that of float is 127
}

/// Writes one block, and returns its scale.
template <typename T>
std::uint8_t quantize(const T* x, std::int64_t count, std::uint8_t* output) {
  float greatest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = x[i];
    const float size = value < 0 ? -value : value;
    if (size > greatest) greatest = size;
  }
  const std::uint32_t exponent = exponent_above(greatest * (1.0F / 448.0F));
  const float reciprocal = exponent == 254 ? 0x1p-127F : float_of((254 - exponent) << 23);
  for (std::int64_t i = 0; i < count; ++i) output[i] = to_float8(x[i] * reciprocal);
  return static_cast<std::uint8_t>(exponent);
}

template <typename T>
void mxfp8_quantize(TensorView<const T> tensor, TensorView<std::uint8_t> output, TensorView<std::uint8_t> scale_inv) {
  const std::int64_t size = tensor.size(tensor.rank() - 1);
  const std::int64_t columns = scale_inv.size(1);
  const std::int64_t rows = size == 0 ? 0 : tensor.numel() / size;
  parallel_for(0, scale_inv.size(0), 1 + 32768 / (size + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const std::int64_t first = column * kBlock;
        std::uint8_t& scale = scale_inv.data[row * columns + column];
        scale = 0;
        if (row >= rows || first >= size) continue;
        const std::int64_t count = size - first < kBlock ? size - first : kBlock;
        const std::int64_t at = row * size + first;
        scale = quantize(tensor.data + at, count, output.data + at);
      }
    }
  });
}

}  // namespace opmatrix::mxfp8_quantize
