// The C API of ONNX Runtime in a library: which version it is, and its errors.
#pragma once

#include <onnxruntime_c_api.h>

#include <exception>

#include "dtype.h"
#include "kernel_error.h"

namespace opmatrix::ort {

static_assert(ORT_API_VERSION >= 18, "opmatrix needs the headers of ONNX Runtime 1.18 or newer");

template <typename T, std::size_t kCount>
constexpr std::size_t count_of(const T (&)[kCount]) {
  return kCount;  // std::size without <iterator>, which takes longer to compile than a binding
}

// Set by RegisterCustomOps, before anything else here is used.
inline const OrtApi* api = nullptr;
inline std::uint32_t version = 0;
// Whether to infer shapes for a node with an absent input before a present one: ONNX Runtime 1.18 and 1.21 read the
// type of the absent input through a null pointer before they call the custom op. 1.24 and newer do not.
inline bool infers_past_absent_inputs = false;

/// KernelInfoGetAttributeArray_string of ONNX Runtime 1.25 and newer, which headers before 25 do not have; else null.
using GetStrings = OrtStatusPtr(ORT_API_CALL*)(const OrtKernelInfo*, const char*, OrtAllocator*, char***, std::size_t*);
inline GetStrings get_strings = nullptr;
inline constexpr std::size_t kGetStrings = 417;  // among the functions of OrtApi, which never move
#if ORT_API_VERSION >= 25
static_assert(offsetof(OrtApi, KernelInfoGetAttributeArray_string) / sizeof(void*) == kGetStrings);
#endif

/// GetTensorElementTypeAndShapeDataReference of ONNX Runtime 1.24 and newer, likewise: the sizes without a copy of
/// them.
using GetShape = OrtStatusPtr(ORT_API_CALL*)(const OrtValue*, ONNXTensorElementDataType*, const std::int64_t**,
                                             std::size_t*);
inline GetShape get_shape = nullptr;
inline constexpr std::size_t kGetShape = 414;
#if ORT_API_VERSION >= 24
static_assert(offsetof(OrtApi, GetTensorElementTypeAndShapeDataReference) / sizeof(void*) == kGetShape);
#endif

/// An OrtStatus as an exception, until `to_status` returns it to ONNX Runtime.
struct StatusError {
  OrtStatus* status;
};

inline void check_call(OrtStatus* status) {
  if (status != nullptr) throw StatusError{status};
}

/// Runs `body` and returns what it throws as a status: no exception may cross into ONNX Runtime.
template <typename Body>
OrtStatus* to_status(const Body& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (const StatusError& error) {
    return error.status;
  } catch (const Error& error) {
    return api->CreateStatus(ORT_INVALID_ARGUMENT, error.what());
  } catch (const std::exception& error) {
    return api->CreateStatus(ORT_FAIL, error.what());
  } catch (...) {
    return api->CreateStatus(ORT_FAIL, "opmatrix: a kernel threw something that is no std::exception");
  }
}

/// Whether a call succeeded; releases the status of a failure.
inline bool succeeds(OrtStatus* status) {
  if (status == nullptr) return true;
  api->ReleaseStatus(status);
  return false;
}

constexpr ONNXTensorElementDataType element_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    case DType::bfloat16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16;
    case DType::float32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    case DType::float64:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
    case DType::float8_e4m3fn:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN;
    case DType::float8_e5m2:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2;
    case DType::float8_e4m3fnuz:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FNUZ;
    case DType::float8_e5m2fnuz:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ;
    case DType::int4:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4;
    case DType::uint4:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4;
    case DType::int8:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
    case DType::int16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16;
    case DType::int32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
    case DType::int64:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
    case DType::uint8:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
    case DType::uint16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16;
    case DType::uint32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32;
    case DType::uint64:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64;
    case DType::boolean:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL;
    case DType::string:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING;
    case DType::complex64:
    case DType::complex128:
    case DType::other:
      break;
  }
  return ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
}

}  // namespace opmatrix::ort
