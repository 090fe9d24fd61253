// Shape inference in ONNX Runtime: generated code computes with the sizes that are known while a model is loaded, by
// the expressions that compute() has. Needs version 17 of the C API.
#pragma once

#include <initializer_list>

#include "items.h"
#include "opmatrix/check.h"
#include "ort_api.h"

namespace opmatrix::ort {

/// A size while a model is loaded: a number, the name of a dynamic axis, or unknown.
class Dim {
 public:
  constexpr Dim() = default;
  constexpr Dim(std::int64_t number) : number_(number), known_(true) {}

  static constexpr Dim named(const char* name) {
    Dim found;
    found.name_ = name;
    return found;
  }

  constexpr bool known() const { return known_; }
  constexpr std::int64_t number() const { return number_; }
  constexpr const char* name() const { return name_; }

  // Of numbers a number, and unknown where it has no room. Sizes are no names: "n" plus 1 has none.
  friend Dim operator+(Dim a, Dim b) { return a.with(b, __builtin_add_overflow(a.number_, b.number_, &a.number_)); }
  friend Dim operator-(Dim a, Dim b) { return a.with(b, __builtin_sub_overflow(a.number_, b.number_, &a.number_)); }
  friend Dim operator*(Dim a, Dim b) { return a.with(b, __builtin_mul_overflow(a.number_, b.number_, &a.number_)); }
  friend Dim operator/(Dim a, Dim b) { return floor_divide(a, b); }
  /// Unknown for a divisor below 1, which the kernel rejects.
  friend Dim floor_divide(Dim a, Dim b) {
    if (!a.known_ || !b.known_ || b.number_ < 1) return {};
    return a.number_ / b.number_ - (a.number_ % b.number_ < 0 ? 1 : 0);
  }

 private:
  /// `this` has the result already.
  Dim with(Dim other, bool overflows) const { return known_ && other.known_ && !overflows ? Dim(number_) : Dim(); }

  std::int64_t number_ = 0;
  const char* name_ = "";  // borrowed from ONNX Runtime
  bool known_ = false;
};

/// The sizes of a tensor; if not even their number is known, its rank is unknown, and so is each size.
class Shape {
 public:
  static constexpr std::int64_t kMost = 64;  // of ONNX Runtime's tensors
  static constexpr std::int64_t kRemoved = INT64_MIN;

  Shape() : rank(0) {}
  Shape(std::initializer_list<Dim> sizes) : rank(0) {
    for (const Dim size : sizes) add(size);
  }

  static Shape unknown() {
    Shape found;
    found.rank = Dim();
    return found;
  }

  Dim operator[](Dim axis) const { return has(axis) ? sizes_[axis.number()] : Dim(); }

  void add(Dim size) {
    if (!rank.known()) return;
    if (rank.number() == kMost) {
      rank = Dim();
    } else {
      sizes_[rank.number()] = size;
      rank = rank + 1;
    }
  }
  void add(const Shape& others) {
    if (!others.rank.known()) rank = Dim();
    for (std::int64_t axis = 0; others.has(axis); ++axis) add(others[axis]);
  }
  /// `axis` is negative from the back.
  void replace(Dim axis, Dim size) {
    if (axis.known() && axis.number() < 0) axis = rank + axis;
    if (has(axis)) {
      sizes_[axis.number()] = size;
    } else {
      rank = Dim();
    }
  }
  /// Takes out the axes whose size was replaced with kRemoved.
  void drop_removed() {
    Shape kept;
    for (std::int64_t axis = 0; has(axis); ++axis) {
      if (!sizes_[axis].known() || sizes_[axis].number() != kRemoved) kept.add(sizes_[axis]);
    }
    if (rank.known()) *this = kept;
  }

  Dim rank;

 private:
  bool has(Dim axis) const {
    return rank.known() && axis.known() && axis.number() >= 0 && axis.number() < rank.number();
  }

  Dim sizes_[kMost];
};

/// The size of an axis, negative from the back.
inline Dim axis_size(const Shape& shape, Dim axis) {
  return shape[axis.known() && axis.number() < 0 ? axis + shape.rank : axis];
}

/// The sizes without `front` at the beginning and `back` at the end: those of "...".
inline Shape sizes_between(const Shape& shape, std::int64_t front, std::int64_t back) {
  const Dim count = shape.rank - front - back;
  if (!count.known() || count.number() < 0) return Shape::unknown();
  Shape found;
  for (std::int64_t axis = 0; axis < count.number(); ++axis) found.add(shape[front + axis]);
  return found;
}

inline Dim numel(const Shape& shape) {
  if (!shape.rank.known()) return {};
  Dim product = 1;
  for (std::int64_t axis = 0; axis < shape.rank.number(); ++axis) product = product * shape[axis];
  return product;
}

/// The items of an attribute, as sizes.
class Numbers {
 public:
  explicit Numbers(std::size_t count) : items_(count) {}
  Numbers(std::initializer_list<std::int64_t> items) : items_(items.size()) {
    std::size_t at = 0;
    for (const std::int64_t item : items) items_[at++] = item;
  }

  std::int64_t* data() { return items_.data(); }
  Dim operator[](std::size_t index) const { return index < items_.size() ? Dim(items_.begin()[index]) : Dim(); }

 private:
  Items<std::int64_t> items_;
};

/// What is known about the shapes and attributes of a node while a model is loaded.
class ShapeContext {
 public:
  explicit ShapeContext(OrtShapeInferContext* context) : context_(context) {}

  /// The shape of an input, or of the first tensor of a variadic one; unknown for an absent one. A scalar's is unknown,
  /// too: the C API returns rank 0 for both.
  Shape input(std::size_t index) const {
    const OrtTensorTypeAndShapeInfo* const info = input_info(index);
    if (info == nullptr) return Shape::unknown();
    std::size_t rank = 0;
    std::int64_t sizes[Shape::kMost];
    const char* names[Shape::kMost];
    check_call(api->GetDimensionsCount(info, &rank));
    if (rank == 0 || rank > count_of(sizes)) return Shape::unknown();
    check_call(api->GetDimensions(info, sizes, rank));
    check_call(api->GetSymbolicDimensions(info, names, rank));
    Shape found;
    for (std::size_t axis = 0; axis < rank; ++axis) found.add(sizes[axis] >= 0 ? sizes[axis] : Dim::named(names[axis]));
    return found;
  }

  /// An attribute of kind int; unknown where it has another type.
  Dim number(const char* name, Dim otherwise = {}) const {
    const OrtOpAttr* found = nullptr;
    if (!succeeds(api->ShapeInferContext_GetAttribute(context_, name, &found))) return otherwise;
    std::int64_t value = 0;
    std::size_t bytes = 0;
    return succeeds(api->ReadOpAttr(found, ORT_OP_ATTR_INT, &value, sizeof value, &bytes)) ? Dim(value) : Dim();
  }

  /// An attribute of kind ints; empty where it has another type.
  Numbers numbers(const char* name, Numbers otherwise = {}) const {
    const OrtOpAttr* found = nullptr;
    if (!succeeds(api->ShapeInferContext_GetAttribute(context_, name, &found))) return otherwise;
    std::size_t bytes = 0;
    succeeds(api->ReadOpAttr(found, ORT_OP_ATTR_INTS, nullptr, 0, &bytes));  // fails, and returns how many it needs
    Numbers values(bytes / sizeof(std::int64_t));
    if (!succeeds(api->ReadOpAttr(found, ORT_OP_ATTR_INTS, values.data(), bytes, &bytes))) return {};
    return values;
  }

  /// The type of the elements of an input; undefined for an absent one.
  ONNXTensorElementDataType type_of(std::size_t index) const {
    ONNXTensorElementDataType found = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    if (const OrtTensorTypeAndShapeInfo* info = input_info(index)) check_call(api->GetTensorElementType(info, &found));
    return found;
  }

  /// Gives an output a shape, unless its rank is unknown. `name` begins the names of its unknown sizes. 1.21 and newer
  /// take the type, too: of all choices of dtypes, they infer with the first.
  void output(std::size_t index, ONNXTensorElementDataType type, const char* name, const Shape& shape) const {
    if (!shape.rank.known() || type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED) return;
    const auto rank = static_cast<std::size_t>(shape.rank.number());
    std::int64_t sizes[Shape::kMost];
    const char* names[Shape::kMost];
    Items<char> made[Shape::kMost];
    for (std::size_t axis = 0; axis < rank; ++axis) {
      const Dim size = shape[static_cast<std::int64_t>(axis)];
      const bool number = size.known() && size.number() >= 0;  // below 0 the kernel rejects the call
      if (!number && *size.name() == 0) made[axis] = new_name(name);
      sizes[axis] = number ? size.number() : -1;
      names[axis] = number ? "" : *size.name() != 0 ? size.name() : made[axis].data();
    }
    struct Info {
      OrtTensorTypeAndShapeInfo* info = nullptr;
      ~Info() { api->ReleaseTensorTypeAndShapeInfo(info); }
    } given;
    check_call(api->CreateTensorTypeAndShapeInfo(&given.info));
    check_call(api->SetTensorElementType(given.info, type));
    check_call(api->SetDimensions(given.info, sizes, rank));
    check_call(api->SetSymbolicDimensions(given.info, names, rank));
    check_call(api->ShapeInferContext_SetOutputTypeShape(context_, index, given.info));
  }

  void output(std::size_t index, DType type, const char* name, const Shape& shape) const {
    output(index, element_type(type), name, shape);
  }

  /// The same for an output that has no element while the attribute `wanted` is 0.
  template <typename Type>
  void output(std::size_t index, Type type, const char* name, const Shape& shape, Dim wanted) const {
    output(index, type, name, wanted.known() && wanted.number() == 0 ? Shape{0} : shape);
  }

 private:
  /// Null for an absent input; borrowed.
  const OrtTensorTypeAndShapeInfo* input_info(std::size_t index) const {
    std::size_t count = 0;
    OrtTensorTypeAndShapeInfo* info = nullptr;
    check_call(api->ShapeInferContext_GetInputCount(context_, &count));
    return index < count && succeeds(api->ShapeInferContext_GetInputTypeShape(context_, index, &info)) ? info : nullptr;
  }

  /// A name for a size that is not known. ONNX Runtime has no other way to express it: a size without a name becomes
  /// -1, and two tensors of that shape are of one size to it, so that one gets the other's memory. So each name is new.
  static Items<char> new_name(const char* name) {
    static std::int64_t last = 0;
    const std::int64_t number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
    Items<char> made(__builtin_strlen(name) + 32);
    const int length = Part(name).print(made.data(), made.size());
    Part(number).print(made.data() + length, made.size() - static_cast<std::size_t>(length));
    return made;
  }

  OrtShapeInferContext* context_;
};

}  // namespace opmatrix::ort
