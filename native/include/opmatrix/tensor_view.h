// Tensors as kernels see them: a pointer and sizes, contiguous in C order, in memory of the caller.
#pragma once

#include <cstdint>

namespace opmatrix {

/// The sizes of a tensor, outermost first. A view, as is every type in this file.
struct Sizes {
  /// The first size; may be null if there are none.
  const std::int64_t* data = nullptr;
  /// The number of axes.
  std::int64_t rank = 0;

  /// The size of `axis`, from 0 to rank - 1, which is not checked.
  constexpr std::int64_t operator[](std::int64_t axis) const { return data[axis]; }
  /// The sizes, for a loop over them.
  constexpr const std::int64_t* begin() const { return data; }
  constexpr const std::int64_t* end() const { return data + rank; }

  /// Whether both have the same axes with the same sizes.
  friend constexpr bool operator==(Sizes a, Sizes b) {
    if (a.rank != b.rank) return false;
    for (std::int64_t i = 0; i < a.rank; ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }
};

/// The product of the sizes from `axis` on: the number of elements of one index of the axes before it.
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

/// A tensor of T. `TensorView<const T>` is an input. An output may have the `data` of the input that the declaration
/// names as its `may_inplace`; apart from that, inputs and outputs never overlap. `data` is aligned for a T alone, as
/// x[1:] is, and may be null if it is empty.
///
/// A tensor of strings is one of `std::string`, with any bytes; the strings of an output are empty at first.
template <typename T>
struct TensorView {
  /// The first element.
  T* data = nullptr;
  /// The sizes of all axes.
  Sizes sizes;

  /// The number of axes.
  constexpr std::int64_t rank() const { return sizes.rank; }
  /// The size of `axis`, from 0 to rank - 1, which is not checked.
  constexpr std::int64_t size(std::int64_t axis) const { return sizes[axis]; }
  /// The number of elements.
  constexpr std::int64_t numel() const { return opmatrix::numel(sizes); }
};

/// An optional input or output: a tensor, or none. An output that is none is not computed.
template <typename T>
struct OptionalView {
  /// Whether the caller gave it.
  bool given = false;
  /// The tensor, where it is given.
  TensorView<T> tensor;

  /// Whether the caller gave it: `if (bias)`.
  constexpr explicit operator bool() const { return given; }
  /// The tensor: `*bias`, `bias->data`.
  constexpr const TensorView<T>& operator*() const { return tensor; }
  constexpr const TensorView<T>* operator->() const { return &tensor; }
};

/// An output whose sizes the kernel decides: it calls `make` once, with as many sizes as the declaration has. Of an
/// optional one it first tests whether it is `wanted`.
template <typename T>
class NewTensor {
 public:
  /// The function of a binding that allocates memory for a tensor of the given sizes.
  using Make = void* (*)(void* owner, Sizes sizes);

  /// A binding makes it; `owner` is the first argument of `function`.
  constexpr NewTensor(Make function, void* owner, bool wanted = true)
      : make_(function), owner_(owner), wanted_(wanted) {}

  /// Whether the kernel makes it: false for an optional output that a node leaves out.
  constexpr bool wanted() const { return wanted_; }

  /// Returns the output, which the kernel writes.
  TensorView<T> make(Sizes sizes) const { return {static_cast<T*>(make_(owner_, sizes)), sizes}; }

 private:
  Make make_;
  void* owner_;
  bool wanted_;
};

}  // namespace opmatrix
