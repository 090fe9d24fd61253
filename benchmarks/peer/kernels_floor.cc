// What kernels.py calls the floor: loops and a node that do little more than move the data. No result is of use.
#define ORT_API_MANUAL_INIT
#include <onnxruntime_cxx_api.h>

#include <cstdint>

#include "opmatrix/simd.h"

namespace {

namespace simd = opmatrix::simd;

/// A normalization of groups of `count` elements: reads and converts a group and sums it in V's type, with no care for
/// accuracy, reads and converts it again for one multiplication and addition, converts, and writes.
template <typename V, typename T>
void two_passes(const T* x, std::int64_t groups, std::int64_t count, bool past, T* y) {
  using Wide = simd::Vec<V>;
  constexpr int kLanes = simd::kLanes<V>;
  for (std::int64_t group = 0; group < groups; ++group, x += count, y += count) {
    Wide sums[2] = {};
    Wide squares[2] = {};
    for (std::int64_t i = 0; i < count; i += 2 * kLanes) {
      const auto from = simd::load_pair<V>(x + i);
      sums[0] += from.a;
      sums[1] += from.b;
      squares[0] += from.a * from.a;
      squares[1] += from.b * from.b;
    }
    const V bias = -simd::sum(sums[0] + sums[1]) / static_cast<V>(count);
    const V factor = static_cast<V>(count) / (1 + simd::sum(squares[0] + squares[1]));
    for (std::int64_t i = 0; i < count; i += 2 * kLanes) {
      const auto from = simd::load_pair<V>(x + i);
      const simd::Pair<V> found = {from.a * factor + bias, from.b * factor + bias};
      if constexpr (sizeof(T) > 2) {
        if (past) {
          simd::stream(y + i, found.a);
          simd::stream(y + i + kLanes, found.b);
          continue;
        }
      }
      simd::store_pair(y + i, found);
    }
  }
  simd::flush_streams();
}

void ignore(OrtStatus*) {}

/// Makes an output of one element, and leaves it as it is.
struct NothingKernel {
  static void Compute(OrtKernelContext* context) {
    const std::int64_t one = 1;
    OrtValue* made = nullptr;
    ignore(Ort::GetApi().KernelContext_GetOutput(context, 0, &one, 1, &made));
  }
};

struct Nothing : Ort::CustomOpBase<Nothing, NothingKernel> {
  void* CreateKernel(const OrtApi&, const OrtKernelInfo*) const { return new NothingKernel; }
  const char* GetName() const { return "Nothing"; }
  size_t GetInputTypeCount() const { return 3; }
  ONNXTensorElementDataType GetInputType(size_t i) const {
    return i < 2 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT : ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
  }
  OrtCustomOpInputOutputCharacteristic GetInputCharacteristic(size_t i) const {
    return i < 2 ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
  }
  size_t GetOutputTypeCount() const { return 1; }
  ONNXTensorElementDataType GetOutputType(size_t) const { return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64; }
};

}  // namespace

#define EXPORT extern "C" [[gnu::visibility("default")]]
#define TWO_PASSES(name, V, T)                                                             \
  EXPORT void name(const T* x, std::int64_t groups, std::int64_t count, bool past, T* y) { \
    two_passes<V>(x, groups, count, past, y);                                              \
  }

TWO_PASSES(float32, float, float)
TWO_PASSES(float64, double, double)
TWO_PASSES(float16, float, opmatrix::Half)
TWO_PASSES(bfloat16, float, opmatrix::BFloat16)

EXPORT OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  Ort::InitApi(base->GetApi(ORT_API_VERSION));
  static const Nothing nothing;
  Ort::CustomOpDomain domain("floor");
  domain.Add(&nothing);
  Ort::UnownedSessionOptions(options).Add(domain);
  domain.release();  // the session's options refer to it
  return nullptr;
}
