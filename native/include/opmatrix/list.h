// Attributes that are lists or strings, and variadic inputs, as kernels see them: pointers to memory of the caller.
#pragma once

#include <cstdint>

namespace opmatrix {

/// A contiguous array of T: the values of an attribute, or the tensors of a variadic input.
template <typename T>
struct List {
  const T* data = nullptr;
  std::int64_t count = 0;

  constexpr std::int64_t size() const { return count; }
  constexpr const T& operator[](std::int64_t index) const { return data[index]; }
  constexpr const T* begin() const { return data; }
  constexpr const T* end() const { return data + count; }
};

/// Whether two strings are equal: a string attribute is a `const char*`.
constexpr bool equal(const char* a, const char* b) {
  return __builtin_strcmp(a, b) == 0;
}

}  // namespace opmatrix
