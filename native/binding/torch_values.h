// Shared by both torch bindings: values of arguments, and a registration that fails.
#pragma once

#include <limits>

#include "items.h"
#include "kernel_error.h"

namespace opmatrix::torch {

/// A float argument is a double in torch and a float in ONNX; kernels see the float, so that both compute the same.
inline float to_float(const char* op, const char* argument, double value) {
  const auto rounded = static_cast<float>(value);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  KERNEL_CHECK((rounded != infinity && rounded != -infinity) || static_cast<double>(rounded) == value, op, ": ",
               argument, " must fit float32, got ", value);
  return rounded;
}

/// Copies a string and its terminating NUL.
inline Items<char> copied_text(const char* op, const char* argument, const char* text, std::size_t length) {
  KERNEL_CHECK(__builtin_strlen(text) == length, op, ": ", argument, " must hold no NUL");
  Items<char> copy(length + 1);
  __builtin_memcpy(copy.data(), text, length);
  return copy;
}

/// What torch calls: `kFunction` with the arguments on the stack, which the results replace. `kDense`: torch has found
/// all tensors to be dense and on the CPU, by the dispatch key that it chose.
template <typename Value, void (*kFunction)(Value* stack, bool dense), bool kDense>
void call(Value* stack, std::uint64_t /*arguments*/, std::uint64_t /*results*/) {
  kFunction(stack, kDense);
}

/// What an operator needs of torch's stable ABI: lists and strings as arguments need 2.10.
enum class Since { torch_2_9, torch_2_10 };

/// The first failed registration of this library, or empty.
inline Error registration_error{""};

/// The most likely reason why torch rejects a definition.
inline constexpr char kDefine[] = "define it; is another library with this operator loaded, or this one twice?";

}  // namespace opmatrix::torch

/// Why an operator of this library is not registered, or "".
extern "C" [[gnu::used, gnu::visibility("default")]] inline const char* opmatrix_error() {
  return opmatrix::torch::registration_error.what();
}
