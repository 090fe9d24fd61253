// For declarations with elementwise=True: the kernel takes tensors in torch's channels_last formats without a copy.
#pragma once

#include <initializer_list>

#include "torch_formats.h"

namespace opmatrix::torch {

/// The order of axes in which the kernel gets all tensors, which have one shape: that of memory, batch, space,
/// channels, if all inputs are dense in the memory format channels_last, or channels_last_3d; else that of torch's
/// sizes, for which an input that is not contiguous is copied. The generated fake kernel has the same rule.
class CommonFormat {
 public:
  CommonFormat(const char* op, std::initializer_list<const Input*> inputs)
      : op_(op), sizes_((*inputs.begin())->sizes()) {
    for (const Input* input : inputs) dense_ = dense_ && input->is_contiguous();
    if (dense_ || sizes_.rank < 4 || sizes_.rank > kMost) return;
    for (const Input* input : inputs) {
      if (!is_channels_last(op, *input)) return;
    }
    dense_ = channels_last_ = true;
    ordered_[0] = sizes_[0];
    for (std::int64_t axis = 2; axis < sizes_.rank; ++axis) ordered_[axis - 1] = sizes_[axis];
    ordered_[sizes_.rank - 1] = sizes_[1];
    sizes_.data = ordered_;
  }
  CommonFormat(const CommonFormat&) = delete;  // sizes_ may be those in ordered_
  CommonFormat& operator=(const CommonFormat&) = delete;

  /// The sizes in this order.
  Sizes sizes() const { return sizes_; }

  template <typename T>
  TensorView<const T> view(Input& input) const {
    return dense_ ? TensorView<const T>{data<T>(input), sizes_} : input.view<T>();
  }

  /// A new tensor with the sizes of `like`, on the same device.
  Tensor new_tensor(const Input& like, DType dtype) const {
    return channels_last_ ? new_channels_last(op_, like, dtype) : like.new_tensor(like.sizes(), dtype);
  }

 private:
  static constexpr std::int64_t kMost = 5;

  const char* op_;
  Sizes sizes_;
  bool dense_ = true;
  bool channels_last_ = false;
  std::int64_t ordered_[kMost] = {};
};

}  // namespace opmatrix::torch
