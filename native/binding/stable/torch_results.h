// A list of tensors as a result, as LibTorch's stable C ABI passes it.
#pragma once

#include <vector>

#include "torch.h"

namespace opmatrix::torch {

/// Puts tensors on the stack as one list, which torch then owns.
inline StableIValue to_stack(const char* op, std::vector<Tensor>&& tensors) {
  struct Owned {
    StableListHandle list = nullptr;
    ~Owned() {
      if (list != nullptr) torch_delete_list(list);
    }
  } made;
  check_call(torch_new_list_reserve_size(tensors.size(), &made.list), op, "make a list");
  for (Tensor& tensor : tensors) {
    check_call(torch_list_push_back(made.list, to_stack(std::move(tensor))), op, "take a tensor for a list");
  }
  return std::bit_cast<StableIValue>(std::exchange(made.list, nullptr));
}

}  // namespace opmatrix::torch
