// What only some declarations need of torch: optional and variadic tensors, lists, texts, outputs that a kernel makes.
#pragma once

#include <vector>

#include "items.h"
#include "torch.h"

namespace opmatrix::torch {

/// Takes what torch put on the heap for an argument that may be None: the value, or 0.
inline StableIValue take_optional(StableIValue value) {
  auto* const box = std::bit_cast<StableIValue*>(value);
  if (box == nullptr) return 0;
  const StableIValue inner = *box;
  if (torch_delete_stable_ivalue != nullptr) {
    torch_delete_stable_ivalue(box);
  } else {
    delete box;  // as torch's own headers do before 2.13
  }
  return inner;
}

/// A tensor argument that may be None.
class OptionalInput {
 public:
  OptionalInput(const char* op, const char* name, StableIValue value)
      : OptionalInput(value != 0, Input(op, name, take_optional(value))) {}

  bool given() const { return given_; }
  void check_dense() {
    if (given_) input_.check_dense();
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

/// A list on the stack, which is ours to drop.
class StackList {
 public:
  StackList(const char* op, StableIValue value) : op_(op), handle_(std::bit_cast<StableListHandle>(value)) {}
  StackList(const StackList&) = delete;
  StackList& operator=(const StackList&) = delete;
  ~StackList() { torch_delete_list(handle_); }

  std::size_t size() const {
    std::size_t size = 0;
    check_call(torch_list_size(handle_, &size), op_, "tell the length of a list");
    return size;
  }
  StableIValue operator[](std::size_t index) const {
    StableIValue item = 0;
    check_call(torch_list_get_item(handle_, index, &item), op_, "give an item of a list");
    return item;
  }

 private:
  const char* op_;
  StableListHandle handle_;
};

/// Copies a list, each item made by `convert`.
template <typename T>
Items<T> to_items(const char* op, StableIValue value, T (*convert)(StableIValue)) {
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

/// Copies a text, with the NUL behind it.
inline Items<char> to_text(const char* op, const char* argument, StableIValue value) {
  struct Handle {
    StringHandle text;
    ~Handle() { torch_delete_string(text); }
  } const handle{std::bit_cast<StringHandle>(value)};
  const char* data = nullptr;
  std::size_t length = 0;
  check_call(torch_string_c_str(handle.text, &data), op, "give a text");
  check_call(torch_string_length(handle.text, &length), op, "tell the length of a text");
  KERNEL_CHECK(__builtin_strlen(data) == length, op, ": ", argument, " must hold no NUL");
  Items<char> copy(length + 1);
  __builtin_memcpy(copy.data(), data, length);
  return copy;
}

/// The tensors of a variadic argument.
class Inputs {
 public:
  Inputs(const char* op, const char* name, StableIValue value) {
    const StackList list(op, value);
    for (std::size_t i = 0; i < list.size(); ++i) inputs_.emplace_back(op, name, list[i]);
  }

  void check_dense() {
    for (Input& input : inputs_) input.check_dense();
  }
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
  /// `like` says on which device.
  NewOutput(const Input& like, const char* op, const char* name, std::int64_t rank)
      : like_(like), op_(op), name_(name), rank_(rank) {}

  NewTensor<T> tensor() {
    const auto make = [](void* owner, Sizes sizes) -> void* { return static_cast<NewOutput*>(owner)->make(sizes); };
    return {make, this};
  }

  /// Throws unless the kernel has made it.
  Tensor take() {
    KERNEL_CHECK(made_.get() != nullptr, op_, ": the kernel made no ", name_);
    return std::move(made_);
  }

 private:
  T* make(Sizes sizes) {
    KERNEL_CHECK(made_.get() == nullptr, op_, ": the kernel made ", name_, " twice");
    KERNEL_CHECK(sizes.rank == rank_, op_, ": the kernel must make ", name_, " with ", rank_, " axes, got ", sizes);
    made_ = like_.new_tensor(sizes, dtype_of<T>);
    return made_.data<T>();
  }

  const Input& like_;
  const char* op_;
  const char* name_;
  std::int64_t rank_;
  Tensor made_;
};

}  // namespace opmatrix::torch
