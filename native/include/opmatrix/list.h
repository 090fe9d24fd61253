// Attributes that are a list or a text, and inputs of which there are any number, as kernels see them: borrowed.
#pragma once

#include <cstdint>

namespace opmatrix {

/// Some T in a row: the numbers of an attribute, or the tensors of a variadic input.
template <typename T>
struct List {
  const T* data = nullptr;
  std::int64_t count = 0;

  constexpr std::int64_t size() const { return count; }
  constexpr const T& operator[](std::int64_t index) const { return data[index]; }
  constexpr const T* begin() const { return data; }
  constexpr const T* end() const { return data + count; }
};

/// Whether two texts are the same: a string attribute is a `const char*`.
constexpr bool equal(const char* a, const char* b) {
  return __builtin_strcmp(a, b) == 0;
}

}  // namespace opmatrix
