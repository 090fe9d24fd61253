// RegisterCustomOps for a library of one or several operators: chooses the version of the C API and adds the domains.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ort.h"

namespace opmatrix::ort {

// 21 is the newest version that this code was tested with; newer ONNX Runtimes support it as well.
inline constexpr long kOldest = 16;
inline constexpr long kNewest = ORT_API_VERSION < 21 ? ORT_API_VERSION : 21;

/// Sets `api` and `version` to what the running ONNX Runtime offers. Throws a status where that is too old.
inline bool choose_version(const OrtApiBase* base) {
  const char* running = base->GetVersionString();  // "1.31.1"; the API's version is the number in the middle
  const char* dot = std::strchr(running, '.');
  const long minor = dot == nullptr ? 0 : std::strtol(dot + 1, nullptr, 10);
  // Never a newer version than it has: GetApi would return null and print to stderr.
  const auto chosen = static_cast<std::uint32_t>(minor < kNewest ? minor : kNewest);
  api = base->GetApi(chosen);
  version = chosen;
  infers_past_absent_inputs = minor >= 24;
  if (minor >= 24) get_shape = reinterpret_cast<const GetShape*>(api)[kGetShape];
  if (minor >= 25) get_strings = reinterpret_cast<const GetStrings*>(api)[kGetStrings];
  if (minor < kOldest) {
    const Error error{"opmatrix: this library needs ONNX Runtime 1.", kOldest, " or newer, and was loaded by ",
                      running};
    std::fprintf(stderr, "%s\n", error.what());
    throw StatusError{api == nullptr ? nullptr : api->CreateStatus(ORT_NOT_IMPLEMENTED, error.what())};
  }
  return true;
}

/// Throws if a library of opmatrix has added this domain to a session's options, else records that one with `names`
/// does. ONNX Runtime itself would reject the session without naming the domain or the library.
inline void claim(OrtSessionOptions* options, const char* domain, const char* names) {
  char key[256];
  std::snprintf(key, sizeof key, "opmatrix.domain.%s", domain);  // ONNX Runtime ignores unknown keys
  int there = 0;
  check_call(api->HasSessionConfigEntry(options, key, &there));
  if (there == 0) return check_call(api->AddSessionConfigEntry(options, key, names));
  char first[512] = "";
  std::size_t size = sizeof first;
  check_call(api->GetSessionConfigEntry(options, key, first, &size));
  throw Error{"opmatrix: the library of ",
              names,
              " adds the domain ",
              domain,
              " to a session that has it from the library of ",
              first,
              ". ONNX Runtime takes a domain once: register each library once, and give the operators of one domain ",
              "one library, that of an operator that uses them all"};
}

/// Whether ONNX Runtime has the dtypes of a custom op. Before 1.21 a session ends with an error for any with four bits.
inline bool has_dtypes(const OrtCustomOp& op) {
  const auto four_bits = [](ONNXTensorElementDataType type) {
    return type == ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4 || type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4;
  };
  bool found = false;
  for (std::size_t i = 0; i < op.GetInputTypeCount(&op); ++i) found |= four_bits(op.GetInputType(&op, i));
  for (std::size_t i = 0; i < op.GetOutputTypeCount(&op); ++i) found |= four_bits(op.GetOutputType(&op, i));
  return version >= 21 || !found;
}

/// The domains of the operators `names`. ONNX Runtime borrows them, so they live as long as the library.
template <std::size_t kCount>
class Domains {
 public:
  Domains(const char* names, const Operator (&operators)[kCount]) : names_(names), operators_(operators) {
    for (std::size_t i = 0; i < kCount; ++i) {
      OrtCustomOpDomain*& domain = domains_[find(operators, i)];
      if (domain == nullptr) check_call(api->CreateCustomOpDomain(operators[i].domain, &domain));
      for (std::size_t op = 0; op < operators[i].count; ++op) {
        if (has_dtypes(*operators[i].ops[op])) check_call(api->CustomOpDomain_Add(domain, operators[i].ops[op]));
      }
    }
  }
  Domains(const Domains&) = delete;
  Domains& operator=(const Domains&) = delete;
  ~Domains() {
    for (OrtCustomOpDomain* domain : domains_) {
      if (domain != nullptr) api->ReleaseCustomOpDomain(domain);
    }
  }

  void add_to(OrtSessionOptions* options) const {
    for (std::size_t i = 0; i < kCount; ++i) {
      if (domains_[i] == nullptr) continue;
      claim(options, operators_[i].domain, names_);
      check_call(api->AddCustomOpDomain(options, domains_[i]));
    }
  }

 private:
  /// The first operator with the domain of operator `i`: a session takes a domain once.
  static std::size_t find(const Operator (&operators)[kCount], std::size_t i) {
    std::size_t first = 0;
    while (std::strcmp(operators[first].domain, operators[i].domain) != 0) ++first;
    return first;
  }

  const char* names_;
  const Operator (&operators_)[kCount];
  OrtCustomOpDomain* domains_[kCount] = {};
};

}  // namespace opmatrix::ort
