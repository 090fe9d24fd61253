// The operator of tests/support/double.py for ONNX Runtime, with one fault that FAULT names.
#include <atomic>
#include <onnxruntime_c_api.h>
#include <sched.h>

#define NONE 0
#define WRONG 1       // a wrong number
#define SECOND_RUN 2  // a wrong number in every second run
#define INPUT 3       // writes to its input
#define STATUS 4      // fails the run
#define RANK 5        // an output of another shape
#define DOMAIN_ 6     // registered under another domain
#define DTYPE 7       // takes float64 alone
#define NO_ENTRY 8    // exports no RegisterCustomOps
#define OPTIMISED 9   // a wrong number in the sessions that optimise: the first and the third of a model
#define THREADS 10    // a buffer that all calls share
#define SHAPE 11      // infers a shape that the output does not have
#ifndef FAULT
#define FAULT NONE
#endif

namespace {

const OrtApi* api;
OrtCustomOp op;
std::atomic<int> runs{0};

float shared[1 << 20];
int kernels = 0;
int numbers[64];

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const OrtValue* x;
  OrtValue* y;
  OrtTensorTypeAndShapeInfo* shape;
  size_t elements, rank;
  int64_t dims[8];
  float *from, *to;
  if (FAULT == STATUS) return api->CreateStatus(ORT_FAIL, "double: x must be positive, got -1");
  (void)api->KernelContext_GetInput(context, 0, &x);
  (void)api->GetTensorTypeAndShape(x, &shape);
  (void)api->GetTensorShapeElementCount(shape, &elements);
  (void)api->GetDimensionsCount(shape, &rank);
  (void)api->GetDimensions(shape, dims, rank);
  api->ReleaseTensorTypeAndShapeInfo(shape);
  if (FAULT == RANK) dims[rank++] = 1;
  (void)api->KernelContext_GetOutput(context, 0, dims, rank, &y);
  (void)api->GetTensorMutableData(const_cast<OrtValue*>(x), reinterpret_cast<void**>(&from));
  (void)api->GetTensorMutableData(y, reinterpret_cast<void**>(&to));
  for (size_t i = 0; i < elements; ++i) to[i] = 2 * from[i];
  if (FAULT == THREADS) {
    for (size_t i = 0; i < elements; ++i) shared[i] = 2 * from[i];
    for (int i = 0; i < 50; ++i) sched_yield();
    for (size_t i = 0; i < elements; ++i) to[i] = shared[i];
  }
  if (elements && FAULT == OPTIMISED && *static_cast<int*>(kernel) % 2 == 0) to[elements - 1] += 1;
  const int run = ++runs;
  if (elements && (FAULT == WRONG || (FAULT == SECOND_RUN && run % 2 == 0))) to[elements - 1] += 1;
  if (elements && FAULT == INPUT) from[0] = 77;
  return nullptr;
}

OrtStatus* infer(const OrtCustomOp*, OrtShapeInferContext* context) {
  const int64_t dims[] = {2, 4};
  const char* names[] = {"", ""};
  OrtTensorTypeAndShapeInfo* info;
  (void)api->CreateTensorTypeAndShapeInfo(&info);
  (void)api->SetTensorElementType(info, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  (void)api->SetDimensions(info, dims, 2);
  (void)api->SetSymbolicDimensions(info, names, 2);
  OrtStatus* status = api->ShapeInferContext_SetOutputTypeShape(context, 0, info);
  api->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

OrtStatus* register_ops(OrtSessionOptions* options, const OrtApiBase* base) {
  op.version = FAULT == SHAPE ? 17 : 16;
  api = base->GetApi(op.version);
  if (FAULT == SHAPE) op.InferOutputShapeFn = infer;
  op.GetName = [](const OrtCustomOp*) { return "Double"; };
  op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op.GetInputTypeCount = op.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  op.GetInputType = op.GetOutputType = [](const OrtCustomOp*, size_t) {
    return FAULT == DTYPE ? ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  };
  op.GetInputCharacteristic =
      op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_REQUIRED; };
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  op.GetVariadicInputMinArity = op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputMinArity = op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel) -> OrtStatus* {
    numbers[kernels] = kernels;
    *kernel = &numbers[kernels++];
    return nullptr;
  };
  op.KernelDestroy = [](void*) {};
  op.KernelComputeV2 = compute;
  OrtCustomOpDomain* domain;
  if (OrtStatus* status = api->CreateCustomOpDomain(FAULT == DOMAIN_ ? "other" : "test.domain", &domain)) return status;
  if (OrtStatus* status = api->CustomOpDomain_Add(domain, &op)) return status;
  return api->AddCustomOpDomain(options, domain);
}

}  // namespace

#if FAULT == NO_ENTRY
extern "C" OrtStatus* SomethingElse
#else
extern "C" OrtStatus* RegisterCustomOps
#endif
    (OrtSessionOptions* options, const OrtApiBase* base) {
  return register_ops(options, base);
}
