// A list of tensors as a result, over torch's C++ headers.
#pragma once

#include <vector>

#include "torch.h"

namespace opmatrix::torch {

/// Puts tensors on the stack as one list.
inline Value to_stack(const char* /*op*/, std::vector<Tensor>&& tensors) {
  c10::List<at::Tensor> list;
  for (Tensor& tensor : tensors) list.push_back(tensor.release());
  return list;
}

}  // namespace opmatrix::torch
