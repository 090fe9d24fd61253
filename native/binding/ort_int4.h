// For declarations with int4 or uint4. A kernel has each number in a byte, as an Int4 or a UInt4, or as an int8 or a
// uint8 where torch has that; ONNX Runtime has two in one, the first in the low four bits.
#pragma once

#include <limits>

#include "opmatrix/int4.h"
#include "ort_kinds.h"

namespace opmatrix::ort {

/// A tensor of int4, or of uint4 where T has no sign, with a T for each number.
template <typename T>
class UnpackedValue : public Value {
 public:
  explicit UnpackedValue(const OrtValue* value) : Value(value) {
    if (value == nullptr) return;
    numbers_ = Items<T>(static_cast<std::size_t>(numel(sizes())));
    const std::uint8_t* const bytes = Value::view<std::uint8_t>().data;
    const std::size_t pairs = numbers_.size() / 2;
    T* const made = numbers_.data();
    for (std::size_t i = 0; i < pairs; ++i) {
      made[2 * i] = low(bytes[i]);
      made[2 * i + 1] = low(bytes[i] >> 4);
    }
    if (numbers_.size() % 2 == 1) made[2 * pairs] = low(bytes[pairs]);
  }

  template <typename>
  TensorView<const T> view() const {
    return {numbers_.begin(), sizes()};
  }

  template <typename>
  OptionalView<const T> optional_view() const {
    return given() ? OptionalView<const T>{true, view<T>()} : OptionalView<const T>{};
  }

 private:
  static T low(int bits) { return static_cast<T>(+FourBits<std::numeric_limits<T>::is_signed>(bits)); }

  Items<T> numbers_;
};

template <bool kSigned>
struct Holder<FourBits<kSigned>> {
  using type = UnpackedValue<FourBits<kSigned>>;
};

/// An output of int4 or uint4, which `store` packs: the low four bits of each T. The bits after the last one are 0.
template <typename T>
class PackedOutput {
 public:
  PackedOutput(const Context& context, std::size_t index, Sizes sizes, bool wanted = true)
      : wanted_(wanted), sizes_(sizes) {
    if (!wanted) return;
    bytes_ = context.output<std::uint8_t>(index, sizes).data;
    numbers_ = Items<T>(static_cast<std::size_t>(numel(sizes)));
  }

  TensorView<T> view() { return {numbers_.data(), sizes_}; }
  OptionalView<T> optional_view() { return wanted_ ? OptionalView<T>{true, view()} : OptionalView<T>{}; }

  void store() {
    const T* const made = numbers_.begin();
    const std::size_t pairs = numbers_.size() / 2;
    for (std::size_t i = 0; i < pairs; ++i) {
      bytes_[i] = static_cast<std::uint8_t>(low(made[2 * i]) | low(made[2 * i + 1]) << 4);
    }
    if (numbers_.size() % 2 == 1) bytes_[pairs] = static_cast<std::uint8_t>(low(made[2 * pairs]));
  }

 private:
  static unsigned low(T number) { return static_cast<unsigned>(static_cast<int>(number)) & 15U; }

  bool wanted_;
  std::uint8_t* bytes_ = nullptr;
  Items<T> numbers_;
  Sizes sizes_;
};

template <bool kSigned>
class Output<FourBits<kSigned>> : public PackedOutput<FourBits<kSigned>> {
 public:
  using PackedOutput<FourBits<kSigned>>::PackedOutput;
};

}  // namespace opmatrix::ort
