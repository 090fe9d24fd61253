// Optional tensors, lists and strings as LibTorch's stable C ABI passes them.
#pragma once

#include "items.h"
#include "torch.h"

namespace opmatrix::torch {

/// Takes what torch put on the heap for an argument that may be None; returns the value, or 0.
inline StableIValue take_optional(StableIValue value) {
  auto* const box = std::bit_cast<StableIValue*>(value);
  if (box == nullptr) return 0;
  const StableIValue inner = *box;
  if (torch_delete_stable_ivalue != nullptr) {
    torch_delete_stable_ivalue(box);
  } else {
    delete box;  // as torch's headers do before 2.13
  }
  return inner;
}

inline bool is_none(StableIValue value) {
  return value == 0;
}

/// Owns a list on the stack.
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

/// Calls `take` with the bytes of a string and their number.
template <typename Take>
void with_text(const char* op, StableIValue value, const Take& take) {
  struct Handle {
    StringHandle text;
    ~Handle() { torch_delete_string(text); }
  } const handle{std::bit_cast<StringHandle>(value)};
  const char* data = nullptr;
  std::size_t length = 0;
  check_call(torch_string_c_str(handle.text, &data), op, "return a string");
  check_call(torch_string_length(handle.text, &length), op, "return the length of a string");
  take(data, length);
}

/// Copies a string and its terminating NUL.
inline Items<char> to_text(const char* op, const char* argument, StableIValue value) {
  Items<char> copy;
  with_text(op, value, [&](const char* text, std::size_t length) { copy = copied_text(op, argument, text, length); });
  return copy;
}

}  // namespace opmatrix::torch
