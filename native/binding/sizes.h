// Sizes that a declaration computes, such as "(N - 3) // 2 + 1", and shapes whose rank depends on the call.
#pragma once

#include "opmatrix/check.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix {

/// Rounds down as Python's // does, so that C++ and Python compute the same; `divisor` is greater than 0.
constexpr std::int64_t floor_divide(std::int64_t number, std::int64_t divisor) {
  return number / divisor - (number % divisor < 0 ? 1 : 0);
}

/// Throws unless an output can have these sizes: "op: y would have the shape (-1, 3); its inputs are too small".
inline void check_computed(const char* op, const char* output, Sizes sizes) {
  for (std::int64_t i = 0; i < sizes.rank; ++i) {
    KERNEL_CHECK(sizes[i] >= 0, op, ": ", output, " would have the shape ", sizes, "; its inputs are too small");
  }
}

/// The size of an axis, negative from the back, which exists.
constexpr std::int64_t axis_size(Sizes sizes, std::int64_t axis) {
  return sizes[axis < 0 ? axis + sizes.rank : axis];
}

/// The sizes without `front` at the beginning and `back` at the end: those of "...".
constexpr Sizes sizes_between(Sizes sizes, std::int64_t front, std::int64_t back) {
  return {sizes.data + front, sizes.rank - front - back};
}

/// The shape of an output whose rank depends on the call.
class AnyRank {
 public:
  static constexpr std::int64_t kRemoved = INT64_MIN;

  AnyRank() = default;
  explicit AnyRank(Sizes sizes) { add(sizes); }

  Sizes sizes() const { return {sizes_, rank_}; }
  void add(std::int64_t size) {
    KERNEL_CHECK(rank_ < kMost, "opmatrix: an output has more than ", kMost, " dimensions");
    sizes_[rank_++] = size;
  }
  void add(Sizes sizes) {
    for (const std::int64_t size : sizes) add(size);
  }
  /// `axis` exists, and is negative from the back.
  void replace(std::int64_t axis, std::int64_t size) { sizes_[axis < 0 ? axis + rank_ : axis] = size; }
  /// Takes out the axes whose size was replaced with kRemoved.
  void drop_removed() {
    std::int64_t kept = 0;
    for (std::int64_t axis = 0; axis < rank_; ++axis) {
      if (sizes_[axis] != kRemoved) sizes_[kept++] = sizes_[axis];
    }
    rank_ = kept;
  }

 private:
  static constexpr std::int64_t kMost = 64;  // of ONNX Runtime's tensors

  std::int64_t sizes_[kMost];
  std::int64_t rank_ = 0;
};

/// A size that the kernel has not decided yet.
constexpr std::int64_t kUndecided = -1;

/// Throws unless the kernel makes an output with the known sizes; a size that is kUndecided becomes the kernel's.
inline void compare_sizes(const char* op, const char* output, Sizes made, std::int64_t* const* known) {
  for (std::int64_t axis = 0; axis < made.rank; ++axis) {
    if (*known[axis] == kUndecided) *known[axis] = made[axis];
    KERNEL_CHECK(made[axis] == *known[axis], op, ": the kernel must make ", output, " with ", *known[axis],
                 " as the size of axis ", axis, ", got ", made);
  }
}

}  // namespace opmatrix
