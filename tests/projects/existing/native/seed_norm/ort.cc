// A kernel and an Ort::CustomOpBase, over ONNX Runtime's C++ API and Eigen.
#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <vector>

#include "Eigen/Dense"

template <typename T>
struct GroupNormKernel {
  GroupNormKernel(const OrtApi&, const OrtKernelInfo* info)
      : epsilon_(Ort::ConstKernelInfo(info).GetAttribute<float>("epsilon")) {}

  void Compute(OrtKernelContext* context) {
    using Eigen::Array;
    using Eigen::Dynamic;
    using Eigen::Map;
    Ort::KernelContext ctx(context);
    const auto X = ctx.GetInput(0);
    const std::vector<int64_t> shape = X.GetTensorTypeAndShapeInfo().GetShape();
    const float count = ctx.GetInput(1).GetTensorData<float>()[0];
    if (!(count >= 1 && count < 1e9f && count == std::floor(count) && shape[1] % int64_t(count) == 0)) {
      throw Ort::Exception("num_groups must divide the channels", ORT_INVALID_ARGUMENT);
    }
    const T* scale = ctx.GetInput(2).GetTensorData<T>();
    const T* bias = ctx.GetInput(3).GetTensorData<T>();
    T* out = ctx.GetOutput(0, shape).template GetTensorMutableData<T>();
    const int64_t groups = count, channels = shape[1] / groups;
    int64_t spatial = 1;
    for (int i = 2; i < shape.size(); ++i) spatial *= shape[i];
    if (channels * spatial == 0) return;
    for (int64_t g = 0; g < shape[0] * groups; ++g) {
      const Map<const Array<T, Dynamic, 1>> x(X.GetTensorData<T>() + g * channels * spatial, channels * spatial);
      const Array<double, Dynamic, 1> exact = x.template cast<double>();
      const double mean = exact.mean();
      const double inverse = 1 / std::sqrt((exact - mean).square().mean() + epsilon_);
      for (int c = 0; c < channels; ++c) {
        const int64_t channel = g % groups * channels + c;
        Map<Array<T, Dynamic, 1>> y(out + (g * channels + c) * spatial, spatial);
        y = ((exact.segment(c * spatial, spatial) - mean) * inverse * scale[channel] + bias[channel])
                .template cast<T>();
      }
    }
  }

 private:
  float epsilon_;
};

struct GroupNormCustomOp : Ort::CustomOpBase<GroupNormCustomOp, GroupNormKernel<float>> {
  void* CreateKernel(const OrtApi& api, const OrtKernelInfo* info) const {
    return new GroupNormKernel<float>(api, info);
  };
  const char* GetName() const { return "testgroupnorm"; };
  size_t GetInputTypeCount() const { return 4; };
  ONNXTensorElementDataType GetInputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  size_t GetOutputTypeCount() const { return 1; };
  ONNXTensorElementDataType GetOutputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
};

extern "C" OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  Ort::InitApi(base->GetApi(ORT_API_VERSION));
  static const GroupNormCustomOp custom_op;
  static Ort::CustomOpDomain custom_op_domain("seed.domain");
  static const bool added = (custom_op_domain.Add(&custom_op), true);
  if (added) Ort::UnownedSessionOptions(options).Add(custom_op_domain);
  return nullptr;
}
