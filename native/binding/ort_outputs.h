// For declarations with a variadic output: its tensors, and their number in a node.
#pragma once

#include <deque>
#include <vector>

#include "ort_kinds.h"

namespace opmatrix::ort {

/// The tensors of a variadic output, the last one of a node.
template <typename T>
class Outputs {
 public:
  /// Allocates one for each of `sizes`.
  Outputs(const Context& context, std::size_t first, List<Sizes> sizes) {
    for (const Sizes one : sizes) add(context, first, one);
  }
  /// Allocates `count` tensors of the same sizes.
  Outputs(const Context& context, std::size_t first, std::int64_t count, Sizes sizes) {
    for (std::int64_t i = 0; i < count; ++i) add(context, first, sizes);
  }

  List<TensorView<T>> list() const { return {views_.data(), static_cast<std::int64_t>(views_.size())}; }
  void store() {
    for (Output<T>& output : outputs_) output.store();
  }

 private:
  void add(const Context& context, std::size_t first, Sizes sizes) {
    outputs_.emplace_back(context, first + outputs_.size(), sizes);
    views_.push_back(outputs_.back().view());
  }

  std::deque<Output<T>> outputs_;  // which stay where they are
  std::vector<TensorView<T>> views_;
};

/// How many tensors a node gives its variadic input, which begins at `first`.
inline std::int64_t count_variadic(const Attributes& attributes, std::size_t first) {
  std::size_t count = 0;
  check_call(api->KernelInfo_GetInputCount(attributes.info(), &count));
  return count > first ? static_cast<std::int64_t>(count - first) : 0;
}

/// Throws unless a node names `wanted` tensors of the variadic output `name`, which begins at `first`; `reason` is what
/// says how many there are.
inline void check_outputs(const Attributes& attributes, std::size_t first, const char* name, std::int64_t wanted,
                          const char* reason) {
  std::size_t count = 0;
  check_call(api->KernelInfo_GetOutputCount(attributes.info(), &count));
  const auto found = static_cast<std::int64_t>(count) - static_cast<std::int64_t>(first);
  KERNEL_CHECK(wanted > 0, attributes.op(), ": ", name, " has no tensor, ", reason, ", and a node has an output");
  KERNEL_CHECK(found == wanted, attributes.op(), ": the node must have ", wanted, " tensors of ", name, ", ", reason,
               ", got ", found);
  for (std::size_t i = first; i < count; ++i) {
    KERNEL_CHECK(attributes.has_output(i), attributes.op(), ": the node names no output ", static_cast<std::int64_t>(i),
                 ", a tensor of ", name, ", which must have all");
  }
}

}  // namespace opmatrix::ort
