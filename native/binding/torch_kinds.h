// For the declarations that need them: optional and variadic tensors, lists, strings, outputs that a kernel makes.
#pragma once

#include <vector>

#include "sizes.h"
#include "torch_lists.h"

namespace opmatrix::torch {

/// A tensor argument that may be None.
class OptionalInput {
 public:
  OptionalInput(const char* op, const char* name, Value value)
      : OptionalInput(!is_none(value), Input(op, name, take_optional(value))) {}

  bool given() const { return given_; }
  void check_dense(bool known) {
    if (given_) input_.check_dense(known);
  }
  DType dtype() const { return input_.dtype(); }
  /// None or one.
  Items<Sizes> sizes() const {
    Items<Sizes> found(given_ ? 1 : 0);
    if (given_) found[0] = input_.sizes();
    return found;
  }

  template <typename T>
  OptionalView<const T> optional_view() {
    return given_ ? OptionalView<const T>{true, input_.view<T>()} : OptionalView<const T>{};
  }

 private:
  OptionalInput(bool given, Input&& input) : given_(given), input_(std::move(input)) {}

  bool given_;
  Input input_;
};

/// Throws unless an argument is None, its only legal value.
inline void check_none(const char* op, const char* name, Value value) {
  const bool none = is_none(value);
  if (!none) take_optional(std::move(value));
  KERNEL_CHECK(none, op, ": ", name, " must be None, got another value");
}

/// Copies a list, each item made by `convert`.
template <typename T>
Items<T> to_items(const char* op, Value value, T (*convert)(Value)) {
  const StackList list(op, value);
  Items<T> items(list.size());
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = convert(list[i]);
  return items;
}

/// A list of float arguments as kernels see it, each rounded to float.
inline Items<float> to_floats(const char* op, const char* argument, const Items<double>& values) {
  Items<float> rounded(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) rounded[i] = to_float(op, argument, values.begin()[i]);
  return rounded;
}

/// The tensors of a variadic argument.
class Inputs {
 public:
  Inputs(const char* op, const char* name, Value value) {
    const StackList list(op, value);
    for (std::size_t i = 0; i < list.size(); ++i) inputs_.emplace_back(op, name, list[i]);
  }

  void check_dense(bool known) {
    for (Input& input : inputs_) input.check_dense(known);
  }
  std::int64_t count() const { return static_cast<std::int64_t>(inputs_.size()); }
  std::vector<Input>::const_iterator begin() const { return inputs_.begin(); }
  std::vector<Input>::const_iterator end() const { return inputs_.end(); }

  Items<Sizes> sizes() const {
    Items<Sizes> found(inputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) found[i] = inputs_[i].sizes();
    return found;
  }

  template <typename T>
  Items<TensorView<const T>> views() {
    Items<TensorView<const T>> found(inputs_.size());
    for (std::size_t i = 0; i < inputs_.size(); ++i) found[i] = inputs_[i].template view<T>();
    return found;
  }

 private:
  std::vector<Input> inputs_;
};

/// An output that the kernel makes.
template <typename T>
class NewOutput {
 public:
  /// The output is on the device of `like`. `known` has a pointer to each size that the declaration names; null: only
  /// the rank is known. `wanted`: whether the kernel makes it; otherwise it is an empty tensor.
  NewOutput(const Input& like, const char* op, const char* name, std::int64_t rank,
            std::int64_t* const* known = nullptr, bool wanted = true)
      : like_(like), op_(op), name_(name), rank_(rank), known_(known), wanted_(wanted) {}

  NewTensor<T> tensor() {
    const auto make = [](void* owner, Sizes sizes) -> void* { return static_cast<NewOutput*>(owner)->make(sizes); };
    return {make, this, wanted_};
  }

  /// Throws unless the kernel has made it, if it is wanted.
  Tensor take() {
    const std::int64_t none = 0;
    if (!wanted_) return like_.new_tensor(Sizes{&none, 1}, dtype_of<T>);
    KERNEL_CHECK(made_.defined(), op_, ": the kernel made no ", name_);
    return std::move(made_);
  }

 private:
  T* make(Sizes sizes) {
    KERNEL_CHECK(wanted_, op_, ": the kernel made ", name_, ", which is not wanted; ask wanted() first");
    KERNEL_CHECK(!made_.defined(), op_, ": the kernel made ", name_, " twice");
    KERNEL_CHECK(sizes.rank == rank_, op_, ": the kernel must make ", name_, " with ", rank_, " axes, got ", sizes);
    if (known_ != nullptr) compare_sizes(op_, name_, sizes, known_);
    made_ = like_.new_tensor(sizes, dtype_of<T>);
    return made_.data<T>();
  }

  const Input& like_;
  const char* op_;
  const char* name_;
  std::int64_t rank_;
  std::int64_t* const* known_;
  bool wanted_;
  Tensor made_;
};

}  // namespace opmatrix::torch
