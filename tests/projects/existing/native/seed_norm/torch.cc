// As in the seeds: one function over torch/script.h and Eigen, registered without a schema.
#include <torch/script.h>

#include <cmath>

#include "Eigen/Dense"

using Eigen::Array;
using Eigen::Dynamic;
using Eigen::Map;

torch::Tensor custom_group_norm(torch::Tensor X, torch::Tensor num_groups, torch::Tensor scale, torch::Tensor bias,
                                double eps) {
  X = X.contiguous();
  scale = scale.contiguous();
  bias = bias.contiguous();
  torch::Tensor Y = torch::empty_like(X);
  const float count = num_groups.data<float>()[0];  // deprecated, and no error: this is how it was
  TORCH_CHECK(count >= 1 && count < 1e9f && count == std::floor(count) && X.size(1) % int64_t(count) == 0,
              "num_groups must divide ", X.size(1), ", got ", count);
  if (X.numel() == 0) return Y;
  const int64_t groups = count, channels = X.size(1) / groups, spatial = X.numel() / (X.size(0) * X.size(1));
  for (int64_t g = 0; g < X.size(0) * groups; ++g) {
    const Map<const Array<float, Dynamic, 1>> x(X.data_ptr<float>() + g * channels * spatial, channels * spatial);
    const Array<double, Dynamic, 1> exact = x.cast<double>();
    const double mean = exact.mean();
    const double inverse = 1 / std::sqrt((exact - mean).square().mean() + eps);
    for (int c = 0; c < channels; ++c) {
      const int64_t channel = g % groups * channels + c;
      Map<Array<float, Dynamic, 1>> y(Y.data_ptr<float>() + (g * channels + c) * spatial, spatial);
      y = ((exact.segment(c * spatial, spatial) - mean) * inverse * scale.data_ptr<float>()[channel] +
           bias.data_ptr<float>()[channel])
              .cast<float>();
    }
  }
  return Y;
}

static auto registry = torch::RegisterOperators("seedspace::custom_group_norm", &custom_group_norm);
