// The seed's way on the ONNX Runtime side, on today's headers: Ort::CustomOpBase of the C++ API.
#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace {

template <typename T>
struct Kernel {
  explicit Kernel(const OrtKernelInfo* info) : eps(Ort::ConstKernelInfo(info).GetAttribute<float>("epsilon")) {}

  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    const auto x = context.GetInput(0);
    const std::vector<int64_t> shape = x.GetTensorTypeAndShapeInfo().GetShape();
    const T* in = x.GetTensorData<T>();
    const auto groups = static_cast<int64_t>(context.GetInput(1).GetTensorData<float>()[0]);
    const T* scale = context.GetInput(2).GetTensorData<T>();
    const T* bias = context.GetInput(3).GetTensorData<T>();
    T* out = context.GetOutput(0, shape).template GetTensorMutableData<T>();
    int64_t spatial = 1;
    for (size_t i = 2; i < shape.size(); ++i) spatial *= shape[i];
    const int64_t per_group = shape[1] / groups * spatial;
    for (int64_t g = 0; g < shape[0] * groups; ++g) {
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < per_group; ++i) mean += in[g * per_group + i];
      mean /= static_cast<double>(per_group);
      for (int64_t i = 0; i < per_group; ++i) variance += std::pow(in[g * per_group + i] - mean, 2);
      const double inverse = 1 / std::sqrt(variance / static_cast<double>(per_group) + eps);
      for (int64_t i = 0; i < per_group; ++i) {
        const int64_t channel = (g % groups) * (shape[1] / groups) + i / spatial;
        out[g * per_group + i] =
            static_cast<T>((in[g * per_group + i] - mean) * inverse * scale[channel] + bias[channel]);
      }
    }
  }

  float eps;
};

template <typename T, ONNXTensorElementDataType kType>
struct GroupNorm : Ort::CustomOpBase<GroupNorm<T, kType>, Kernel<T>> {
  void* CreateKernel(const OrtApi&, const OrtKernelInfo* info) const { return new Kernel<T>(info); }
  const char* GetName() const { return "mygroupnorm"; }
  size_t GetInputTypeCount() const { return 4; }
  ONNXTensorElementDataType GetInputType(size_t i) const {
    return i == 1 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT : kType;
  }
  size_t GetOutputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetOutputType(size_t) const { return kType; }
};

}  // namespace

extern "C" OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  Ort::InitApi(base->GetApi(ORT_API_VERSION));
  static const GroupNorm<float, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT> floats;
  static const GroupNorm<double, ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE> doubles;
  static Ort::CustomOpDomain domain{"mydomain"};
  domain.Add(&floats);
  domain.Add(&doubles);
  Ort::UnownedSessionOptions(options).Add(domain);
  return nullptr;
}
