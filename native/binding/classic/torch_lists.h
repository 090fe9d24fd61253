// Optional tensors, lists and strings over torch's C++ headers.
#pragma once

#include "items.h"
#include "torch.h"

namespace opmatrix::torch {

inline bool is_none(const Value& value) {
  return value.isNone();
}

/// The value of an argument that may be None; an undefined tensor for None.
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

/// Calls `take` with the bytes of a string and their number.
template <typename Take>
void with_text(const char* /*op*/, const Value& value, const Take& take) {
  const std::string& text = value.toStringRef();
  take(text.data(), text.size());
}

/// Copies a string and its terminating NUL.
inline Items<char> to_text(const char* op, const char* argument, const Value& value) {
  const std::string& text = value.toStringRef();
  return copied_text(op, argument, text.c_str(), text.size());
}

}  // namespace opmatrix::torch
