// Rounds numbers to integers of b bits and converts them back.
//
//   y = (q - zeropt) * scale,  q = round(clamp(x / scale + zeropt, least, most))
//
// A. Pappalardo, Y. Umuroglu, M. Blott, QONNX: Representing Arbitrary-Precision Quantized Neural Networks, 2022; the
// details are those of qonnx's int_quant, Apache-2.0.
//
// Range    With signed -2**(b - 1) to 2**(b - 1) - 1, otherwise 0 to 2**b - 1. Narrow: the first without its least
//          integer, the second without its largest. Signed integers of one bit are -1 (below 0) and 1.
// Rounding ROUND and HALF_EVEN: ties to the even integer; HALF_UP and HALF_DOWN: ties away from 0 and towards it; CEIL,
//          FLOOR; UP and DOWN: all away from 0 and towards it. In capital or small letters.
// Numbers  Each operation in float. NaN propagates, except to one signed bit, which is -1 there.
// Shapes   Those of scale, zeropt and bitwidth broadcast to that of x, each on its own; y has the shape of x.
// Aliasing y overlaps no input.
#pragma once

#include <cmath>
#include <cstdint>

#include "opmatrix/check.h"
#include "opmatrix/parallel.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::quant {

enum class Rounding { half_even, ceil, floor, up, down, half_up, half_down };

/// Returns the rounding mode of a name that the binding has checked: its first and its last letters tell.
inline Rounding rounding_of(const char* name) {
  const auto is = [name](const char* mode) {
    const char* at = name;
    while (*at != 0 && (*at == *mode || *at == *mode - 'A' + 'a')) ++at, ++mode;
    return *at == *mode;
  };
  if (is("CEIL")) return Rounding::ceil;
  if (is("FLOOR")) return Rounding::floor;
  if (is("UP")) return Rounding::up;
  if (is("DOWN")) return Rounding::down;
  if (is("HALF_UP")) return Rounding::half_up;
  if (is("HALF_DOWN")) return Rounding::half_down;
  return Rounding::half_even;
}

inline float rounded(float x, Rounding mode) {
  switch (mode) {
    case Rounding::ceil:
      return std::ceil(x);
    case Rounding::floor:
      return std::floor(x);
    case Rounding::up:
      return std::copysign(std::ceil(std::fabs(x)), x);
    case Rounding::down:
      return std::trunc(x);
    case Rounding::half_up:
      return std::copysign(std::floor(std::fabs(x) + 0.5f), x);
    case Rounding::half_down:
      return x == 0 ? x : std::copysign(std::ceil(std::fabs(x) - 0.5f), x);
    case Rounding::half_even:
      break;
  }
  return std::nearbyint(x);
}

/// A tensor whose shape broadcasts to that of x.
class Parameter {
 public:
  Parameter(const char* name, TensorView<const float> given, Sizes x) : given_(given), x_(x) {
    bool fits = given.rank() <= x.rank;
    for (std::int64_t axis = 1; fits && axis <= given.rank(); ++axis) {
      const std::int64_t size = given.size(given.rank() - axis);
      fits = size == 1 || size == x[x.rank - axis];
    }
    KERNEL_CHECK(fits, "quant: ", name, " must have a shape that broadcasts to that of x, ", x, ", got ", given.sizes);
    one_ = given.numel() == 1;
  }

  /// Its element for the element `index` of x.
  float operator[](std::int64_t index) const {
    if (one_) return given_.data[0];
    std::int64_t at = 0, stride = 1;
    for (std::int64_t axis = 1; axis <= given_.rank(); ++axis) {
      const std::int64_t size = given_.size(given_.rank() - axis), sizes = x_[x_.rank - axis];
      if (size != 1) at += index % sizes * stride;
      stride *= size;
      index /= sizes;
    }
    return given_.data[at];
  }

 private:
  TensorView<const float> given_;
  Sizes x_;
  bool one_ = false;
};

inline float quantized(float x, float scale, float zeropt, int bits, bool is_signed, bool narrow, Rounding mode) {
  const float at = x / scale + zeropt;
  if (bits == 1 && is_signed) return ((at >= 0 ? 1.0f : -1.0f) - zeropt) * scale;
  const float less = narrow ? 1.0f : 0.0f;
  const float most = is_signed ? std::ldexp(1.0f, bits - 1) - 1.0f : std::ldexp(1.0f, bits) - (1.0f + less);
  const float least = is_signed ? -std::ldexp(1.0f, bits - 1) + less : 0.0f;
  return (rounded(at > most ? most : at < least ? least : at, mode) - zeropt) * scale;
}

inline void quant(TensorView<const float> x, TensorView<const float> scale, TensorView<const float> zeropt,
                  TensorView<const float> bitwidth, bool is_signed, bool narrow, const char* rounding_mode,
                  TensorView<float> y) {
  const Parameter scales("scale", scale, x.sizes), zeros("zeropt", zeropt, x.sizes),
      bits("bitwidth", bitwidth, x.sizes);
  const Rounding mode = rounding_of(rounding_mode);
  parallel_for(0, x.numel(), 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      y.data[i] = quantized(x.data[i], scales[i], zeros[i], static_cast<int>(bits[i]), is_signed, narrow, mode);
    }
  });
}

}  // namespace opmatrix::quant
