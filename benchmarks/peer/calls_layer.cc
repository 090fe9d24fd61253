// A binding over the C++ layer of torch's stable ABI.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <tuple>

#include "calls.h"

namespace {

using opmatrix::TensorView;
using torch::stable::Tensor;

TensorView<const float> view(const Tensor& tensor) {
  return {static_cast<const float*>(tensor.data_ptr()), {tensor.sizes().data(), tensor.dim()}};
}
TensorView<float> output(const Tensor& tensor) {
  return {static_cast<float*>(tensor.data_ptr()), {tensor.sizes().data(), tensor.dim()}};
}

Tensor group_norm(Tensor x, Tensor num_groups, Tensor scale, Tensor bias, double eps) {
  STD_TORCH_CHECK(x.is_cpu() && x.is_contiguous(), "x must be contiguous and on the CPU");
  Tensor y = torch::stable::new_empty(x, x.sizes());
  opmatrix::group_norm::compute(view(x), view(num_groups), view(scale), view(bias), static_cast<float>(eps), output(y));
  return y;
}

std::tuple<Tensor, Tensor> dual_residual(Tensor x, Tensor y, double alpha) {
  STD_TORCH_CHECK(x.is_cpu() && x.is_contiguous() && y.is_contiguous(), "x and y must be contiguous and on the CPU");
  Tensor a = torch::stable::new_empty(x, x.sizes()), b = torch::stable::new_empty(x, x.sizes());
  opmatrix::dual_residual::compute(view(x), view(y), static_cast<float>(alpha), output(a), output(b));
  return {std::move(a), std::move(b)};
}

}  // namespace

STABLE_TORCH_LIBRARY(calls_layer, m) {
  m.def(kGroupNorm);
  m.def(kDualResidual);
}
STABLE_TORCH_LIBRARY_IMPL(calls_layer, CompositeExplicitAutograd, m) {
  m.impl("group_norm", TORCH_BOX(&group_norm));
  m.impl("dual_residual", TORCH_BOX(&dual_residual));
}
