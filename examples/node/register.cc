// An addon for Node.js that gives the sessions of onnxruntime-node a library of custom operators: its own options know
// none (1.30). It stands before the two functions of ONNX Runtime's C API that make a session, and registers the
// library that the environment variable OPMATRIX_ORT_LIBRARY names. Load it after onnxruntime-node: see run.js.

#include <cstdint>
#include <cstdlib>

#include <dlfcn.h>
#include <onnxruntime_c_api.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

const OrtApi* ort = nullptr;
decltype(OrtApi::CreateSession) create = nullptr;
decltype(OrtApi::CreateSessionFromArray) create_from_array = nullptr;

OrtStatus* add_library(const OrtSessionOptions* options) {
  const char* path = std::getenv("OPMATRIX_ORT_LIBRARY");
  if (path == nullptr) return ort->CreateStatus(ORT_INVALID_ARGUMENT, "OPMATRIX_ORT_LIBRARY is not set");
  return ort->RegisterCustomOpsLibrary_V2(const_cast<OrtSessionOptions*>(options), path);
}

OrtStatus* ORT_API_CALL from_file(const OrtEnv* env, const ORTCHAR_T* path, const OrtSessionOptions* options,
                                  OrtSession** session) noexcept {
  if (OrtStatus* error = add_library(options)) return error;
  return create(env, path, options, session);
}

OrtStatus* ORT_API_CALL from_array(const OrtEnv* env, const void* model, std::size_t size,
                                   const OrtSessionOptions* options, OrtSession** session) noexcept {
  if (OrtStatus* error = add_library(options)) return error;
  return create_from_array(env, model, size, options, session);
}

/// The table of functions is read-only.
bool make_writable(const void* begin, std::size_t size) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = address / page * page;
  return mprotect(reinterpret_cast<void*>(first), address + size - first, PROT_READ | PROT_WRITE) == 0;
}

}  // namespace

/// What Node calls as it loads an addon; no other part of its API is used.
extern "C" void* napi_register_module_v1(void* /*env*/, void* exports) {
  void* library = dlopen("libonnxruntime.so.1", RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr || ort != nullptr) return exports;
  const auto base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  ort = base()->GetApi(16);
  create = ort->CreateSession;
  create_from_array = ort->CreateSessionFromArray;
  auto* table = const_cast<OrtApi*>(ort);
  if (make_writable(table, sizeof(OrtApi))) {
    table->CreateSession = from_file;
    table->CreateSessionFromArray = from_array;
  }
  return exports;
}
