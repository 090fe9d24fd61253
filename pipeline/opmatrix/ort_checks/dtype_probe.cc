// Two custom ops for the element type PROBED_ELEMENT_TYPE, whose elements have PROBED_ELEMENT_BITS: one makes a
// tensor of that type from bytes, one bytes from such a tensor. `doit probe` thereby measures which types an ONNX
// Runtime carries from one custom op to another, whatever its Python interface takes.
#include <onnxruntime_c_api.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

namespace {

const OrtApi* api = nullptr;
ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
std::size_t bits = 0;

struct Failed {
  OrtStatus* status;
};

void check(OrtStatus* status) {
  if (status != nullptr) throw Failed{status};
}

/// Copies bytes; of a string each byte is an element.
template <bool kToBytes>
void copy(OrtKernelContext* context) {
  const OrtValue* input = nullptr;
  check(api->KernelContext_GetInput(context, 0, &input));
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(api->GetTensorTypeAndShape(input, &info));
  std::size_t count = 0;
  OrtStatus* const counted = api->GetTensorShapeElementCount(info, &count);
  api->ReleaseTensorTypeAndShapeInfo(info);
  check(counted);
  const std::size_t bytes = kToBytes ? count * bits / 8 : count;
  const auto size = static_cast<std::int64_t>(kToBytes ? bytes : count * 8 / bits);
  OrtValue* output = nullptr;
  check(api->KernelContext_GetOutput(context, 0, &size, 1, &output));
  void* from = nullptr;
  void* into = nullptr;
  const bool text = element == ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING;
  if (!text || !kToBytes) check(api->GetTensorMutableData(const_cast<OrtValue*>(input), &from));
  if (!text || kToBytes) check(api->GetTensorMutableData(output, &into));
  if (!text) {
    std::memcpy(into, from, bytes);
  } else if constexpr (kToBytes) {
    std::vector<std::size_t> offsets(count);
    check(api->GetStringTensorContent(input, into, bytes, offsets.data(), count));
  } else {
    for (std::size_t i = 0; i < count; ++i) {
      const std::string one(1, static_cast<const char*>(from)[i]);
      check(api->FillStringTensorElement(output, one.c_str(), i));
    }
  }
}

template <bool kToBytes>
OrtStatus* compute(void*, OrtKernelContext* context) {
  try {
    copy<kToBytes>(context);
    return nullptr;
  } catch (const Failed& failed) {
    return failed.status;
  }
}

template <bool kToBytes>
OrtCustomOp op() {
  OrtCustomOp made{};
  made.version = 16;
  made.GetName = [](const OrtCustomOp*) -> const char* { return kToBytes ? "ToBytes" : "FromBytes"; };
  made.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  made.GetInputTypeCount = made.GetOutputTypeCount = [](const OrtCustomOp*) -> std::size_t { return 1; };
  made.GetInputType = [](const OrtCustomOp*, std::size_t) {
    return kToBytes ? element : ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
  };
  made.GetOutputType = [](const OrtCustomOp*, std::size_t) {
    return kToBytes ? ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 : element;
  };
  made.GetInputCharacteristic =
      made.GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t) { return INPUT_OUTPUT_REQUIRED; };
  made.GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return OrtMemTypeDefault; };
  made.GetVariadicInputMinArity = made.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  made.GetVariadicOutputMinArity = made.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  made.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel) -> OrtStatusPtr {
    *kernel = &element;  // something that is not null
    return nullptr;
  };
  made.KernelComputeV2 = compute<kToBytes>;
  made.KernelDestroy = [](void*) {};
  return made;
}

}  // namespace

extern "C" OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  static const OrtCustomOp from_bytes = op<false>();
  static const OrtCustomOp to_bytes = op<true>();
  api = base->GetApi(16);
  element = static_cast<ONNXTensorElementDataType>(std::atoi(std::getenv("PROBED_ELEMENT_TYPE")));
  bits = static_cast<std::size_t>(std::atoi(std::getenv("PROBED_ELEMENT_BITS")));
  OrtCustomOpDomain* domain = nullptr;
  if (OrtStatus* const status = api->CreateCustomOpDomain("opmatrix.probe", &domain)) return status;
  for (const OrtCustomOp* const one : {&from_bytes, &to_bytes}) {
    if (OrtStatus* const status = api->CustomOpDomain_Add(domain, one)) return status;
  }
  return api->AddCustomOpDomain(options, domain);
}
