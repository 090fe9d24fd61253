// Bindings for ONNX Runtime, one domain each: Ort::CustomOpBase of the C++ API, which reads the shape of the first
// input or of all; the "lite" custom ops; and the floor of the C API, which fetches pointers and one shape and checks
// nothing.
#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>
#include <onnxruntime_lite_custom_op.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "calls.h"

namespace {

using opmatrix::Sizes;
using opmatrix::TensorView;
using Shape = std::vector<int64_t>;

Sizes sizes(const Shape& shape) {
  return {shape.data(), static_cast<int64_t>(shape.size())};
}

/// The kernel with its attribute, over views.
struct GroupNorm {
  static constexpr const char* kName = "GroupNorm";
  static constexpr std::size_t kInputs = 4, kOutputs = 1;
  explicit GroupNorm(const OrtKernelInfo* info) : number(Ort::ConstKernelInfo(info).GetAttribute<float>("epsilon")) {}
  void call(const TensorView<const float>* in, const TensorView<float>* out) const {
    opmatrix::group_norm::compute(in[0], in[1], in[2], in[3], number, out[0]);
  }
  float number;
};

struct DualResidual {
  static constexpr const char* kName = "DualResidual";
  static constexpr std::size_t kInputs = 2, kOutputs = 2;
  explicit DualResidual(const OrtKernelInfo* info) : number(Ort::ConstKernelInfo(info).GetAttribute<float>("alpha")) {}
  void call(const TensorView<const float>* in, const TensorView<float>* out) const {
    opmatrix::dual_residual::compute(in[0], in[1], number, out[0], out[1]);
  }
  float number;
};

template <typename Op, bool kAllShapes>
struct BaseKernel {
  explicit BaseKernel(const OrtKernelInfo* info) : op(info) {}
  void Compute(OrtKernelContext* raw) {
    Ort::KernelContext context(raw);
    Shape shapes[Op::kInputs];
    TensorView<const float> in[Op::kInputs];
    TensorView<float> out[Op::kOutputs];
    for (std::size_t i = 0; i < Op::kInputs; ++i) {
      const auto value = context.GetInput(i);
      if (i == 0 || kAllShapes) shapes[i] = value.GetTensorTypeAndShapeInfo().GetShape();
      in[i] = {value.GetTensorData<float>(), sizes(shapes[i])};
    }
    for (std::size_t i = 0; i < Op::kOutputs; ++i) {
      out[i] = {context.GetOutput(i, shapes[0]).template GetTensorMutableData<float>(), sizes(shapes[0])};
    }
    op.call(in, out);
  }
  Op op;
};

template <typename Op, bool kAllShapes>
struct Base : Ort::CustomOpBase<Base<Op, kAllShapes>, BaseKernel<Op, kAllShapes>> {
  void* CreateKernel(const OrtApi&, const OrtKernelInfo* info) const { return new BaseKernel<Op, kAllShapes>(info); }
  const char* GetName() const { return Op::kName; }
  size_t GetInputTypeCount() const { return Op::kInputs; }
  ONNXTensorElementDataType GetInputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }
  size_t GetOutputTypeCount() const { return Op::kOutputs; }
  ONNXTensorElementDataType GetOutputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }
};

using In = const Ort::Custom::Tensor<float>&;
using Out = Ort::Custom::Tensor<float>&;

TensorView<const float> view(In tensor) {
  return {tensor.Data(), sizes(tensor.Shape())};
}

struct LiteGroupNorm {
  LiteGroupNorm(const OrtApi*, const OrtKernelInfo* info) : op(info) {}
  Ort::Status Compute(In x, In num_groups, In scale, In bias, Out y) {
    const TensorView<const float> in[] = {view(x), view(num_groups), view(scale), view(bias)};
    const TensorView<float> out[] = {{y.Allocate(x.Shape()), in[0].sizes}};
    op.call(in, out);
    return Ort::Status(nullptr);
  }
  GroupNorm op;
};

struct LiteDualResidual {
  LiteDualResidual(const OrtApi*, const OrtKernelInfo* info) : op(info) {}
  Ort::Status Compute(In x, In y, Out a, Out b) {
    const TensorView<const float> in[] = {view(x), view(y)};
    const TensorView<float> out[] = {{a.Allocate(x.Shape()), in[0].sizes}, {b.Allocate(x.Shape()), in[0].sizes}};
    op.call(in, out);
    return Ort::Status(nullptr);
  }
  DualResidual op;
};

// GetTensorElementTypeAndShapeDataReference of ONNX Runtime 1.24 and newer, which these headers may not have; else
// null.
using Refer = OrtStatusPtr(ORT_API_CALL*)(const OrtValue*, ONNXTensorElementDataType*, const int64_t**, size_t*);
Refer refer = nullptr;

void ignore(OrtStatus*) {}

template <typename Op>
struct BareKernel {
  explicit BareKernel(const OrtKernelInfo* info) : op(info) {}
  void Compute(OrtKernelContext* context) {
    const OrtApi& api = Ort::GetApi();
    TensorView<const float> in[Op::kInputs];
    TensorView<float> out[Op::kOutputs];
    const OrtValue* value = nullptr;
    for (std::size_t i = 0; i < Op::kInputs; ++i) {
      void* data = nullptr;
      ignore(api.KernelContext_GetInput(context, i, &value));
      ignore(api.GetTensorMutableData(const_cast<OrtValue*>(value), &data));
      in[i].data = static_cast<const float*>(data);
      if (i > 0) continue;
      size_t rank = 0;
      if (refer != nullptr) {
        ONNXTensorElementDataType type;
        ignore(refer(value, &type, &in[0].sizes.data, &rank));
      } else {
        OrtTensorTypeAndShapeInfo* info = nullptr;
        ignore(api.GetTensorTypeAndShape(value, &info));
        ignore(api.GetDimensionsCount(info, &rank));
        ignore(api.GetDimensions(info, shape, rank));
        api.ReleaseTensorTypeAndShapeInfo(info);
        in[0].sizes.data = shape;
      }
      in[0].sizes.rank = static_cast<int64_t>(rank);
    }
    for (std::size_t i = 0; i < Op::kOutputs; ++i) {
      OrtValue* made = nullptr;
      void* data = nullptr;
      ignore(api.KernelContext_GetOutput(context, i, in[0].sizes.data, static_cast<size_t>(in[0].sizes.rank), &made));
      ignore(api.GetTensorMutableData(made, &data));
      out[i] = {static_cast<float*>(data), in[0].sizes};
    }
    op.call(in, out);
  }
  Op op;
  int64_t shape[64];
};

template <typename Op>
struct Bare : Ort::CustomOpBase<Bare<Op>, BareKernel<Op>> {
  void* CreateKernel(const OrtApi&, const OrtKernelInfo* info) const { return new BareKernel<Op>(info); }
  const char* GetName() const { return Op::kName; }
  size_t GetInputTypeCount() const { return Op::kInputs; }
  ONNXTensorElementDataType GetInputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }
  size_t GetOutputTypeCount() const { return Op::kOutputs; }
  ONNXTensorElementDataType GetOutputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; }
};

template <typename... Ops>
void add(OrtSessionOptions* options, const char* name, const Ops*... ops) {
  Ort::CustomOpDomain domain(name);
  (domain.Add(ops), ...);
  Ort::UnownedSessionOptions(options).Add(domain);
  domain.release();  // the session's options refer to it
}

}  // namespace

extern "C" [[gnu::visibility("default")]] OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options,
                                                                                    const OrtApiBase* base) {
  const OrtApi* const api = base->GetApi(ORT_API_VERSION);
  Ort::InitApi(api);
  if (std::atoi(std::strchr(base->GetVersionString(), '.') + 1) >= 24) {
    refer = reinterpret_cast<const Refer*>(api)[414];
  }
  static const Base<GroupNorm, false> first_norm;
  static const Base<DualResidual, false> first_residual;
  static const Base<GroupNorm, true> all_norm;
  static const Base<DualResidual, true> all_residual;
  static const Bare<GroupNorm> bare_norm;
  static const Bare<DualResidual> bare_residual;
  static const std::unique_ptr<Ort::Custom::OrtLiteCustomOp> lite_norm(
      Ort::Custom::CreateLiteCustomOp<LiteGroupNorm>("GroupNorm", "CPUExecutionProvider"));
  static const std::unique_ptr<Ort::Custom::OrtLiteCustomOp> lite_residual(
      Ort::Custom::CreateLiteCustomOp<LiteDualResidual>("DualResidual", "CPUExecutionProvider"));
  add(options, "calls.base", &first_norm, &first_residual);
  add(options, "calls.shapes", &all_norm, &all_residual);
  add(options, "calls.bare", &bare_norm, &bare_residual);
  add(options, "calls.lite", lite_norm.get(), lite_residual.get());
  return nullptr;
}
