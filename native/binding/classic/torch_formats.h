// torch's memory formats channels_last (four axes) and channels_last_3d (five), over torch's C++ headers.
#pragma once

#include "torch.h"

namespace opmatrix::torch {

template <typename T>
const T* data(const Input& input) {
  return static_cast<const T*>(input.tensor().data_ptr());
}

inline at::MemoryFormat format_of(const Input& input) {
  return input.sizes().rank == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
}

/// Whether an argument with four or five axes is dense in the memory format for them.
inline bool is_channels_last(const char* /*op*/, const Input& input) {
  return input.tensor().is_contiguous(format_of(input));
}

/// A new tensor with the sizes of `like`, in the memory format for its four or five axes.
inline Tensor new_channels_last(const char* op, const Input& like, DType dtype) {
  const auto options = at::TensorOptions().dtype(to_type(dtype)).device(like.tensor().device());
  return ask(op, "allocate an output",
             [&] { return Tensor(at::empty(like.tensor().sizes(), options, format_of(like))); });
}

}  // namespace opmatrix::torch
