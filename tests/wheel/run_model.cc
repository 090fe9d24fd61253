// Runs a model with custom operators through ONNX Runtime's C API, as a C++ program that ships does, and compares.
//
//   run_model LIBRARY MODEL FOLDER
//
// LIBRARY is what my_ops.library_path() names, FOLDER a test data set as ONNX's backend tests have it: input_<i>.pb and
// output_<i>.pb. It needs onnxruntime_c_api.h and libonnxruntime.so alone: no Python, no protobuf, nothing of opmatrix.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <onnxruntime_c_api.h>

namespace {

const OrtApi* const ort = OrtGetApiBase()->GetApi(16);

void check(OrtStatus* status) {
  if (status == nullptr) return;
  std::fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
  std::exit(1);
}

/// A TensorProto: its shape, ONNX's number of its type, and its bytes. Format: onnx.proto, "message TensorProto".
struct Tensor {
  std::vector<std::int64_t> dims;
  std::int64_t type = 0;
  std::string raw;
};

std::uint64_t varint(const std::string& bytes, std::size_t& at) {
  std::uint64_t found = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(at++));
    found |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return found;
  }
}

bool read(const std::string& path, Tensor& tensor) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t at = 0; at < bytes.size();) {
    const std::uint64_t key = varint(bytes, at);
    if ((key & 7) == 0) {
      const auto value = static_cast<std::int64_t>(varint(bytes, at));
      if (key >> 3 == 1) tensor.dims.push_back(value);
      if (key >> 3 == 2) tensor.type = value;
    } else if ((key & 7) == 2) {
      const std::size_t size = varint(bytes, at);
      if (key >> 3 == 9) tensor.raw = bytes.substr(at, size);
      if (key >> 3 == 1) {  // packed
        for (const std::size_t end = at + size; at < end;)
          tensor.dims.push_back(static_cast<std::int64_t>(varint(bytes, at)));
        continue;
      }
      at += size;
    } else {
      std::fprintf(stderr, "%s: only tensors with raw data are read here\n", path.c_str());
      std::exit(1);
    }
  }
  return true;
}

std::vector<Tensor> read_all(const std::string& folder, const char* kind) {
  std::vector<Tensor> found;
  for (Tensor one; read(folder + "/" + kind + "_" + std::to_string(found.size()) + ".pb", one); one = {}) {
    found.push_back(one);
  }
  return found;
}

/// How many elements differ: floats beyond a tolerance, everything else at all.
std::size_t compare(OrtValue* actual, const Tensor& expected) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(ort->GetTensorTypeAndShape(actual, &info));
  ONNXTensorElementDataType type{};
  std::size_t rank = 0;
  check(ort->GetTensorElementType(info, &type));
  check(ort->GetDimensionsCount(info, &rank));
  std::vector<std::int64_t> dims(rank);
  check(ort->GetDimensions(info, dims.data(), rank));
  ort->ReleaseTensorTypeAndShapeInfo(info);
  if (type != expected.type || dims != expected.dims) return 1;
  void* data = nullptr;
  check(ort->GetTensorMutableData(actual, &data));
  if (type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT)
    return std::memcmp(data, expected.raw.data(), expected.raw.size()) != 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.raw.size() / sizeof(float); ++i) {
    float e = 0;
    std::memcpy(&e, expected.raw.data() + i * sizeof e, sizeof e);
    const float a = static_cast<const float*>(data)[i];
    if (!(std::fabs(a - e) <= 1e-5F + 1e-4F * std::fabs(e))) ++wrong;
  }
  return wrong;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return std::fprintf(stderr, "usage: run_model LIBRARY MODEL FOLDER\n"), 2;
  OrtEnv* env = nullptr;
  OrtSessionOptions* options = nullptr;
  OrtSession* session = nullptr;
  check(ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "run_model", &env));
  check(ort->CreateSessionOptions(&options));
  check(ort->RegisterCustomOpsLibrary_V2(options, arguments[1]));
  check(ort->CreateSession(env, arguments[2], options, &session));

  std::vector<Tensor> inputs = read_all(arguments[3], "input");
  const std::vector<Tensor> expected = read_all(arguments[3], "output");
  OrtAllocator* allocator = nullptr;
  OrtMemoryInfo* memory = nullptr;
  check(ort->GetAllocatorWithDefaultOptions(&allocator));
  check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  std::vector<char*> input_names(inputs.size());
  std::vector<char*> output_names(expected.size());
  std::vector<OrtValue*> values(inputs.size());
  std::vector<OrtValue*> results(expected.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check(ort->SessionGetInputName(session, i, allocator, &input_names[i]));
    check(ort->CreateTensorWithDataAsOrtValue(memory, inputs[i].raw.data(), inputs[i].raw.size(), inputs[i].dims.data(),
                                              inputs[i].dims.size(),
                                              static_cast<ONNXTensorElementDataType>(inputs[i].type), &values[i]));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    check(ort->SessionGetOutputName(session, i, allocator, &output_names[i]));
  }
  check(ort->Run(session, nullptr, input_names.data(), values.data(), values.size(), output_names.data(),
                 output_names.size(), results.data()));
  std::size_t wrong = expected.empty();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t differ = compare(results[i], expected[i]);
    if (differ != 0) std::fprintf(stderr, "%s: %zu elements differ\n", output_names[i], differ);
    wrong += differ;
  }
  std::printf("%zu outputs, %s\n", expected.size(), wrong == 0 ? "equal" : "different");

  for (OrtValue* value : values) ort->ReleaseValue(value);
  for (OrtValue* result : results) ort->ReleaseValue(result);
  for (char* name : input_names) check(ort->AllocatorFree(allocator, name));
  for (char* name : output_names) check(ort->AllocatorFree(allocator, name));
  ort->ReleaseMemoryInfo(memory);
  ort->ReleaseSession(session);
  ort->ReleaseSessionOptions(options);
  ort->ReleaseEnv(env);
  return wrong == 0 ? 0 : 1;
}
