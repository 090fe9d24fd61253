// Optional tensors, lists and texts as torch's C++ headers have them.
#pragma once

#include "items.h"
#include "torch.h"

namespace opmatrix::torch {

inline bool is_none(const Value& value) {
  return value.isNone();
}

/// The value of an argument that may be None: an undefined tensor where it is.
inline Value take_optional(Value value) {
  return value.isNone() ? Value(at::Tensor()) : value;
}

/// A list on the stack.
class StackList {
 public:
  StackList(const char* /*op*/, Value value) : value_(std::move(value)) {}

  std::size_t size() const { return value_.toListRef().size(); }
  Value operator[](std::size_t index) const { return value_.toListRef()[index]; }

 private:
  Value value_;
};

/// Copies a text, with the NUL behind it.
inline Items<char> to_text(const char* op, const char* argument, const Value& value) {
  const std::string& text = value.toStringRef();
  return copied_text(op, argument, text.c_str(), text.size());
}

}  // namespace opmatrix::torch
