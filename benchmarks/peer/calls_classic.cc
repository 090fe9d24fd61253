// A classic binding: TORCH_LIBRARY over torch's C++ headers, and a loop that calls any operator through torch's
// dispatcher as Python and the interpreter of TorchScript do.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <ctime>

#include "calls.h"

namespace {

using opmatrix::Sizes;
using opmatrix::TensorView;

TensorView<const float> view(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), {tensor.sizes().data(), tensor.dim()}};
}
TensorView<float> output(const at::Tensor& tensor) {
  return {tensor.mutable_data_ptr<float>(), {tensor.sizes().data(), tensor.dim()}};
}

at::Tensor group_norm(const at::Tensor& x, const at::Tensor& num_groups, const at::Tensor& scale,
                      const at::Tensor& bias, double eps) {
  TORCH_CHECK(x.device().is_cpu(), "x must be on the CPU");
  const at::Tensor dense = x.contiguous();
  const at::Tensor y = at::empty(dense.sizes(), dense.options());
  opmatrix::group_norm::compute(view(dense), view(num_groups.contiguous()), view(scale.contiguous()),
                                view(bias.contiguous()), static_cast<float>(eps), output(y));
  return y;
}

std::tuple<at::Tensor, at::Tensor> dual_residual(const at::Tensor& x, const at::Tensor& y, double alpha) {
  TORCH_CHECK(x.device().is_cpu() && x.sizes() == y.sizes(), "x and y must be on the CPU and of one shape");
  const at::Tensor dense_x = x.contiguous(), dense_y = y.contiguous();
  at::Tensor a = at::empty(dense_x.sizes(), dense_x.options()), b = at::empty(dense_x.sizes(), dense_x.options());
  opmatrix::dual_residual::compute(view(dense_x), view(dense_y), static_cast<float>(alpha), output(a), output(b));
  return {std::move(a), std::move(b)};
}

/// Nanoseconds of this thread's CPU time for `count` calls of `name`.
int64_t repeat(const std::string& name, const std::vector<at::Tensor>& inputs, double number, int64_t count) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  const auto now = [] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
  };
  torch::jit::Stack stack;
  const int64_t start = now();
  for (int64_t i = 0; i < count; ++i) {
    stack.clear();
    for (const at::Tensor& input : inputs) stack.emplace_back(input);
    stack.emplace_back(number);
    op.callBoxed(stack);
  }
  return now() - start;
}

}  // namespace

// The key under which the generated binding registers, so that the calls take the same way through the dispatcher.
TORCH_LIBRARY(calls_classic, m) {
  m.def(kGroupNorm);
  m.def(kDualResidual);
  m.def("repeat(str name, Tensor[] inputs, float number, int count) -> int", &repeat);
}
TORCH_LIBRARY_IMPL(calls_classic, CompositeExplicitAutograd, m) {
  m.impl("group_norm", &group_norm);
  m.impl("dual_residual", &dual_residual);
}

// What `m.def` with a function makes: torch calls it without a look at autograd, and torch.compile traces into it.
TORCH_LIBRARY(calls_implicit, m) {
  m.def(kGroupNorm, &group_norm);
  m.def(kDualResidual, &dual_residual);
}
