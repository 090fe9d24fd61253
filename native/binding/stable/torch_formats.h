// torch's memory formats channels_last (four axes) and channels_last_3d (five), over LibTorch's stable C ABI.
#pragma once

#include "torch.h"

namespace opmatrix::torch {

template <typename T>
const T* data(const Input& input) {
  return input.tensor().data<const T>();
}

/// Whether an argument with four or five axes is dense in the memory format for them, as torch's is_contiguous decides.
inline bool is_channels_last(const char* op, const Input& input) {
  std::int64_t* strides = nullptr;
  check_call(aoti_torch_get_strides(input.tensor().get(), &strides), op, "tell the strides of an argument");
  const Sizes sizes = input.sizes();
  std::int64_t count = 1;
  const auto follows = [&](std::int64_t axis) {
    const bool dense = sizes[axis] == 1 || strides[axis] == count;
    count *= sizes[axis];
    return dense;
  };
  bool dense = follows(1);
  for (std::int64_t axis = sizes.rank; dense && axis-- > 2;) dense = follows(axis);
  return dense && follows(0);
}

/// A new tensor with the sizes of `like`, in the memory format for its four or five axes.
inline Tensor new_channels_last(const char* op, const Input& like, DType dtype) {
  const Sizes sizes = like.sizes();
  std::int64_t strides[5];
  std::int64_t count = sizes[1];
  strides[1] = 1;
  for (std::int64_t axis = sizes.rank; axis-- > 2;) {
    strides[axis] = count;
    count *= sizes[axis];
  }
  strides[0] = count;
  AtenTensorHandle made = nullptr;
  check_call(aoti_torch_empty_strided(sizes.rank, sizes.data, strides, to_code(dtype), codes.cpu, 0, &made), op,
             "allocate an output");
  return Tensor(made);
}

}  // namespace opmatrix::torch
