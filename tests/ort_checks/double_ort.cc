// The operator of tests/support/double.py for ONNX Runtime.
#include <onnxruntime_c_api.h>

namespace {

const OrtApi* api;
OrtCustomOp op;

OrtStatus* compute(void*, OrtKernelContext* context) {
  const OrtValue* x;
  OrtValue* y;
  OrtTensorTypeAndShapeInfo* shape;
  size_t elements, rank;
  int64_t dims[8];
  float *from, *to;
  (void)api->KernelContext_GetInput(context, 0, &x);
  (void)api->GetTensorTypeAndShape(x, &shape);
  (void)api->GetTensorShapeElementCount(shape, &elements);
  (void)api->GetDimensionsCount(shape, &rank);
  (void)api->GetDimensions(shape, dims, rank);
  api->ReleaseTensorTypeAndShapeInfo(shape);
  (void)api->KernelContext_GetOutput(context, 0, dims, rank, &y);
  (void)api->GetTensorMutableData(const_cast<OrtValue*>(x), reinterpret_cast<void**>(&from));
  (void)api->GetTensorMutableData(y, reinterpret_cast<void**>(&to));
  for (size_t i = 0; i < elements; ++i) to[i] = 2 * from[i];
  return nullptr;
}

OrtStatus* register_ops(OrtSessionOptions* options, const OrtApiBase* base) {
  op.version = 16;
  api = base->GetApi(op.version);
  op.GetName = [](const OrtCustomOp*) { return "Double"; };
  op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op.GetInputTypeCount = op.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  op.GetInputType = op.GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  op.GetInputCharacteristic =
      op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_REQUIRED; };
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  op.GetVariadicInputMinArity = op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputMinArity = op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel) -> OrtStatus* {
    *kernel = nullptr;
    return nullptr;
  };
  op.KernelDestroy = [](void*) {};
  op.KernelComputeV2 = compute;
  OrtCustomOpDomain* domain;
  if (OrtStatus* status = api->CreateCustomOpDomain("test.domain", &domain)) return status;
  if (OrtStatus* status = api->CustomOpDomain_Add(domain, &op)) return status;
  return api->AddCustomOpDomain(options, domain);
}

}  // namespace

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  return register_ops(options, base);
}
