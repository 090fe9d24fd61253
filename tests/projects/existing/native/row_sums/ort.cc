// An Ort::CustomOpBase over the project's own third_party/.
#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>

#include "total.h"

struct Kernel {
  void Compute(OrtKernelContext* context) {
    Ort::KernelContext ctx(context);
    const auto x = ctx.GetInput(0);
    const auto shape = x.GetTensorTypeAndShapeInfo().GetShape();
    double* y = ctx.GetOutput(0, {shape[0]}).GetTensorMutableData<double>();
    const double* row = x.GetTensorData<double>();
    for (int64_t i = 0; i < shape[0]; ++i, row += shape[1]) y[i] = total(row, row + shape[1]);
  }
};

struct RowSums : Ort::CustomOpBase<RowSums, Kernel> {
  void* CreateKernel(const OrtApi&, const OrtKernelInfo*) const { return new Kernel; }
  const char* GetName() const { return "RowSums"; }
  size_t GetInputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetInputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE; }
  size_t GetOutputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetOutputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE; }
};

extern "C" OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  Ort::InitApi(base->GetApi(ORT_API_VERSION));
  static const RowSums op;
  static const Ort::CustomOpDomain domain = [] {
    Ort::CustomOpDomain made("rows.domain");
    made.Add(&op);
    return made;
  }();
  Ort::UnownedSessionOptions(options).Add(domain);
  return nullptr;
}
