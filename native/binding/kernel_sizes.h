// The shape of an output that has the sizes of an input, except some that the kernel decides.
#pragma once

#include "sizes.h"

namespace opmatrix {

/// A size that the kernel decides, and the binding keeps for the other outputs that have it.
struct Decided {
  std::int64_t* size;
};

class KernelSizes {
 public:
  static constexpr std::int64_t kRemoved = AnyRank::kRemoved;

  explicit KernelSizes(Sizes sizes) : rank_(sizes.rank) {
    KERNEL_CHECK(rank_ <= kMost, "opmatrix: an output has more than ", kMost, " dimensions");
    for (std::int64_t axis = 0; axis < rank_; ++axis) sizes_[axis] = sizes[axis];
  }
  KernelSizes(const KernelSizes&) = delete;
  KernelSizes& operator=(const KernelSizes&) = delete;

  std::int64_t rank() const { return rank_; }
  /// With 0 for each that the kernel decides.
  Sizes sizes() const { return {sizes_, rank_}; }
  /// A pointer to each size.
  std::int64_t* const* known() {
    for (std::int64_t axis = 0; axis < rank_; ++axis) {
      known_[axis] = decided_[axis] != nullptr ? decided_[axis] : &sizes_[axis];
    }
    return known_;
  }
  /// `axis` exists, and is negative from the back.
  void replace(std::int64_t axis, std::int64_t size) { set(axis, size, nullptr); }
  void replace(std::int64_t axis, Decided decided) { set(axis, 0, decided.size); }
  /// Takes out the axes whose size was replaced with kRemoved.
  void drop_removed() {
    std::int64_t kept = 0;
    for (std::int64_t axis = 0; axis < rank_; ++axis) {
      if (sizes_[axis] == kRemoved) continue;
      decided_[kept] = decided_[axis];
      sizes_[kept++] = sizes_[axis];
    }
    rank_ = kept;
  }

 private:
  static constexpr std::int64_t kMost = 64;  // of ONNX Runtime's tensors

  void set(std::int64_t axis, std::int64_t size, std::int64_t* decided) {
    axis = axis < 0 ? axis + rank_ : axis;
    sizes_[axis] = size;
    decided_[axis] = decided;
  }

  std::int64_t sizes_[kMost];
  std::int64_t* decided_[kMost] = {};
  std::int64_t* known_[kMost];
  std::int64_t rank_;
};

}  // namespace opmatrix
