// For declarations with strings. A kernel has each as a std::string; ONNX Runtime gives and takes them through its C
// API.
#pragma once

#include <string>

#include "ort_kinds.h"

namespace opmatrix {

template <>
inline constexpr DType dtype_of<std::string> = DType::string;

namespace ort {

/// A tensor of strings, copied.
class StringValue : public Value {
 public:
  explicit StringValue(const OrtValue* value) : Value(value) {
    if (value == nullptr) return;
    strings_ = Items<std::string>(static_cast<std::size_t>(numel(sizes())));
    if (strings_.size() == 0) return;
    std::size_t length = 0;
    check_call(api->GetStringTensorDataLength(value, &length));
    std::string text(length, '\0');
    Items<std::size_t> begins(strings_.size());
    check_call(api->GetStringTensorContent(value, text.data(), length, begins.data(), begins.size()));
    for (std::size_t i = 0; i < strings_.size(); ++i) {
      const std::size_t end = i + 1 < strings_.size() ? begins[i + 1] : length;
      strings_[i].assign(text, begins[i], end - begins[i]);
    }
  }

  template <typename T>
  TensorView<const T> view() const {
    return {strings_.begin(), sizes()};
  }

  template <typename T>
  OptionalView<const T> optional_view() const {
    return given() ? OptionalView<const T>{true, view<T>()} : OptionalView<const T>{};
  }

 private:
  Items<std::string> strings_;
};

template <>
struct Holder<std::string> {
  using type = StringValue;
};

/// An output of strings, which `store` copies to ONNX Runtime.
template <>
class Output<std::string> {
 public:
  Output(const Context& context, std::size_t index, Sizes sizes, bool wanted = true) : sizes_(sizes) {
    if (!wanted) return;
    value_ = context.output(index, sizes);
    strings_ = Items<std::string>(static_cast<std::size_t>(numel(sizes)));
  }

  TensorView<std::string> view() { return {strings_.data(), sizes_}; }
  OptionalView<std::string> optional_view() {
    return value_ != nullptr ? OptionalView<std::string>{true, view()} : OptionalView<std::string>{};
  }

  void store() {
    for (std::size_t i = 0; i < strings_.size(); ++i) {
      // The functions that fill a string tensor end a string at its first NUL.
      char* bytes = nullptr;
      check_call(api->GetResizedStringTensorElementBuffer(value_, i, strings_[i].size(), &bytes));
      strings_[i].copy(bytes, strings_[i].size());
    }
  }

 private:
  OrtValue* value_ = nullptr;
  Items<std::string> strings_;
  Sizes sizes_;
};

}  // namespace ort
}  // namespace opmatrix
