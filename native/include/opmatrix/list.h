// Attributes that are lists or strings, variadic inputs and outputs, as kernels see them: pointers to memory of others.
#pragma once

#include <cstdint>

namespace opmatrix {

/// A contiguous array of T: the values of an attribute, or the tensors of a variadic input or output.
template <typename T>
struct List {
  /// The first element; may be null if the list is empty.
  const T* data = nullptr;
  /// The number of elements.
  std::int64_t count = 0;

  /// The same number, as in other containers of C++.
  constexpr std::int64_t size() const { return count; }
  /// The element at `index`, which is not checked.
  constexpr const T& operator[](std::int64_t index) const { return data[index]; }
  /// The elements, for a loop over the list.
  constexpr const T* begin() const { return data; }
  constexpr const T* end() const { return data + count; }
};

/// Whether two strings are equal: a string attribute is a `const char*`.
constexpr bool equal(const char* a, const char* b) {
  return __builtin_strcmp(a, b) == 0;
}

}  // namespace opmatrix
