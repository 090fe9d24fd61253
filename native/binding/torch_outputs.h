// For declarations with a variadic output: its tensors, and torch's list of them.
#pragma once

#include <vector>

#include "torch_kinds.h"
#include "torch_results.h"

namespace opmatrix::torch {

/// The tensors of a variadic output.
template <typename T>
class Outputs {
 public:
  /// Allocates one for each tensor of `like`, with its sizes.
  explicit Outputs(const Inputs& like) {
    for (const Input& one : like) add(one, one.sizes());
  }
  /// Allocates `count` tensors of the same sizes, on the device of `like`.
  Outputs(const Input& like, std::int64_t count, Sizes sizes) {
    for (std::int64_t i = 0; i < count; ++i) add(like, sizes);
  }

  List<TensorView<T>> list() const { return {views_.data(), static_cast<std::int64_t>(views_.size())}; }

  /// The result of a call.
  Value take(const char* op) { return to_stack(op, std::move(tensors_)); }

 private:
  void add(const Input& like, Sizes sizes) {
    tensors_.push_back(like.new_tensor(sizes, dtype_of<T>));
    views_.push_back({tensors_.back().template data<T>(), sizes});
  }

  std::vector<Tensor> tensors_;
  std::vector<TensorView<T>> views_;
};

}  // namespace opmatrix::torch
