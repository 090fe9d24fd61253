// A TORCH_LIBRARY over single headers of ATen, which calls the kernel that is compiled once.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "damped.h"

static at::Tensor damped(const at::Tensor& x, double factor) {
  const at::Tensor from = x.contiguous();
  at::Tensor y = at::empty_like(from);
  const opmatrix::Sizes sizes{from.sizes().data(), from.dim()};
  opmatrix::damped::compute({from.const_data_ptr<float>(), sizes}, static_cast<float>(factor),
                            {y.mutable_data_ptr<float>(), sizes});
  return y;
}

TORCH_LIBRARY(brought, m) {
  m.def("damped(Tensor x, float factor=0.5) -> Tensor");
}

TORCH_LIBRARY_IMPL(brought, CPU, m) {
  m.impl("damped", &damped);
}
