// For the declarations that need them: variadic inputs, and outputs whose sizes the kernel decides.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ort.h"
#include "sizes.h"

namespace opmatrix::ort {

/// The tensors of a variadic input, which is the last one; One stores each.
template <typename One>
class ValuesOf {
 public:
  ValuesOf(const Context& context, std::size_t first) {
    for (std::size_t i = first; i < context.count_inputs(); ++i) {
      values_.push_back(std::make_unique<const One>(context.input(i)));
    }
  }

  Items<Sizes> sizes() const {
    Items<Sizes> found(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i) found[i] = values_[i]->sizes();
    return found;
  }

  template <typename T>
  Items<TensorView<const T>> views() const {
    Items<TensorView<const T>> found(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i) found[i] = values_[i]->template view<T>();
    return found;
  }

 private:
  std::vector<std::unique_ptr<const One>> values_;
};
using Values = ValuesOf<Value>;

/// The class that stores an input of T; another one for strings, and for int4 and uint4.
template <typename T>
struct Holder {
  using type = Value;
};
template <typename T>
using ValueOf = typename Holder<T>::type;

/// The memory of an output; `store` ends what `view` began.
template <typename T>
class Output {
 public:
  Output(const Context& context, std::size_t index, Sizes sizes, bool wanted = true) {
    if (wanted) view_ = {true, context.output<T>(index, sizes)};
  }

  TensorView<T> view() { return view_.tensor; }
  OptionalView<T> optional_view() { return view_; }
  void store() {}

 private:
  OptionalView<T> view_;
};

/// A tensor that is an attribute of the node, copied when the session is made.
template <typename T>
class TensorAttribute {
 public:
  /// Throws unless the node has the attribute, with elements of T and these sizes, of which -1 is any.
  void read(const Attributes& attributes, const char* name, std::initializer_list<std::int64_t> dims) {
    const struct Released {
      OrtValue* value;
      ~Released() { api->ReleaseValue(value); }
    } given{attributes.get_tensor(name)};
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check_call(api->GetTensorTypeAndShape(given.value, &info));
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    check_call(api->GetTensorElementType(info, &type));
    api->ReleaseTensorTypeAndShapeInfo(info);
    const Value value(given.value);
    KERNEL_CHECK(type == element_type(dtype_of<T>), attributes.op(), ": attribute ", name, " must be a tensor of ",
                 opmatrix::name(dtype_of<T>), ", got one of another dtype");
    const Sizes sizes = value.sizes();
    bool fits = sizes.rank == static_cast<std::int64_t>(dims.size());
    for (std::int64_t axis = 0; fits && axis < sizes.rank; ++axis) {
      const std::int64_t dim = dims.begin()[axis];
      fits = dim < 0 || dim == sizes[axis];
    }
    const Sizes declared{dims.begin(), static_cast<std::int64_t>(dims.size())};
    KERNEL_CHECK(fits, attributes.op(), ": attribute ", name, " must have the shape ", declared,
                 ", where -1 is any size, got ", sizes);
    sizes_ = Items<std::int64_t>(static_cast<std::size_t>(sizes.rank));
    for (std::int64_t axis = 0; axis < sizes.rank; ++axis) sizes_[static_cast<std::size_t>(axis)] = sizes[axis];
    const TensorView<const T> view = value.view<T>();
    elements_ = Items<T>(static_cast<std::size_t>(view.numel()));
    for (std::int64_t i = 0; i < view.numel(); ++i) elements_[static_cast<std::size_t>(i)] = view.data[i];
  }

  TensorView<const T> view() const {
    return {elements_.begin(), {sizes_.begin(), static_cast<std::int64_t>(sizes_.size())}};
  }

 private:
  Items<T> elements_;
  Items<std::int64_t> sizes_;
};

/// An output that the kernel makes, in the memory of a Made.
template <typename T, typename Made = Output<T>>
class NewOutput {
 public:
  /// `known` has a pointer to each size that the declaration names; null: only the rank is known. `wanted`: whether the
  /// kernel makes it.
  NewOutput(const Context& context, const char* op, const char* name, std::size_t index, std::int64_t rank,
            std::int64_t* const* known = nullptr, bool wanted = true)
      : context_(context), op_(op), name_(name), index_(index), rank_(rank), known_(known), wanted_(wanted) {}

  NewTensor<T> tensor() {
    const auto make = [](void* owner, Sizes sizes) -> void* { return static_cast<NewOutput*>(owner)->make(sizes); };
    return {make, this, wanted_};
  }

  /// Throws unless the kernel has made it, if it is wanted.
  void check_made() {
    KERNEL_CHECK(made_ || !wanted_, op_, ": the kernel made no ", name_);
    if (made_) made_->store();
  }

 private:
  T* make(Sizes sizes) {
    KERNEL_CHECK(wanted_, op_, ": the kernel made ", name_, ", which is not wanted; ask wanted() first");
    KERNEL_CHECK(!made_, op_, ": the kernel made ", name_, " twice");
    KERNEL_CHECK(sizes.rank == rank_, op_, ": the kernel must make ", name_, " with ", rank_, " axes, got ", sizes);
    if (known_ != nullptr) compare_sizes(op_, name_, sizes, known_);
    made_.emplace(context_, index_, sizes);
    return made_->view().data;
  }

  const Context& context_;
  const char* op_;
  const char* name_;
  std::size_t index_;
  std::int64_t rank_;
  std::int64_t* const* known_;
  bool wanted_;
  std::optional<Made> made_;
};

}  // namespace opmatrix::ort
