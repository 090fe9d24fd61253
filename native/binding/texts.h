// Lists of strings that are attributes: memory that a binding owns while the kernel sees views.
#pragma once

#include <string_view>

#include "items.h"

namespace opmatrix {

/// Owns a list of strings, which may hold any bytes.
class Texts {
 public:
  Texts() = default;
  explicit Texts(std::size_t count) : bytes_(count), views_(count) {}
  /// Copies a list.
  explicit Texts(List<std::string_view> list) : Texts(static_cast<std::size_t>(list.size())) {
    for (std::int64_t i = 0; i < list.size(); ++i) set(static_cast<std::size_t>(i), list[i].data(), list[i].size());
  }

  std::size_t size() const { return views_.size(); }
  /// Copies a string of `length` bytes.
  void set(std::size_t index, const char* text, std::size_t length) {
    bytes_[index] = Items<char>(length);
    if (length > 0) __builtin_memcpy(bytes_[index].data(), text, length);
    views_[index] = {length > 0 ? bytes_[index].data() : "", length};
  }
  List<std::string_view> list() const { return views_.list(); }

 private:
  Items<Items<char>> bytes_;
  Items<std::string_view> views_;
};

}  // namespace opmatrix
