// Tensors as kernels see them: a pointer and sizes, contiguous in C order, in memory of the caller.
#pragma once

#include <cstdint>

namespace opmatrix {

/// The sizes of a tensor, outermost first. A view, as is every type in this file.
struct Sizes {
  const std::int64_t* data = nullptr;
  std::int64_t rank = 0;

  constexpr std::int64_t operator[](std::int64_t axis) const { return data[axis]; }
  constexpr const std::int64_t* begin() const { return data; }
  constexpr const std::int64_t* end() const { return data + rank; }

  friend constexpr bool operator==(Sizes a, Sizes b) {
    if (a.rank != b.rank) return false;
    for (std::int64_t i = 0; i < a.rank; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }
};

/// The product of the sizes from `axis` on: the number of elements behind one index of the axes before it.
///
/// Exact for every tensor with an element; 0 if any size is 0.
constexpr std::int64_t numel(Sizes sizes, std::int64_t axis = 0) {
  std::uint64_t product = 1;  // unsigned: with a size of 0 the others may overflow, which is no error
  for (std::int64_t i = axis; i < sizes.rank; ++i) {
    if (sizes[i] == 0) return 0;
    product *= static_cast<std::uint64_t>(sizes[i]);
  }
  return static_cast<std::int64_t>(product);
}

/// A tensor of T. `TensorView<const T>` is an input; inputs and outputs never overlap. `data` is aligned for a T alone,
/// as x[1:] is, and may be null if it is empty.
template <typename T>
struct TensorView {
  T* data = nullptr;
  Sizes sizes;

  constexpr std::int64_t rank() const { return sizes.rank; }
  constexpr std::int64_t size(std::int64_t axis) const { return sizes[axis]; }
  constexpr std::int64_t numel() const { return opmatrix::numel(sizes); }
};

/// An optional input: a tensor, or none.
template <typename T>
struct OptionalView {
  bool given = false;
  TensorView<T> tensor;

  constexpr explicit operator bool() const { return given; }
  constexpr const TensorView<T>& operator*() const { return tensor; }
  constexpr const TensorView<T>* operator->() const { return &tensor; }
};

/// An output whose sizes the kernel decides: it calls `make` once, with as many sizes as the declaration says.
template <typename T>
class NewTensor {
 public:
  using Make = void* (*)(void* owner, Sizes sizes);

  constexpr NewTensor(Make function, void* owner) : make_(function), owner_(owner) {}

  TensorView<T> make(Sizes sizes) const { return {static_cast<T*>(make_(owner_, sizes)), sizes}; }

 private:
  Make make_;
  void* owner_;
};

}  // namespace opmatrix
