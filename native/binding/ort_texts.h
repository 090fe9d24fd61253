// For declarations with lists of strings, in ONNX Runtime.
#pragma once

#include <cstdlib>

#include "ort.h"
#include "texts.h"

namespace opmatrix::ort {

/// Allocates memory with its size: ONNX Runtime gives strings that end with a NUL, without their lengths, and
/// they may have a NUL inside.
class SizedMemory final : public OrtAllocator {
 public:
  SizedMemory() : OrtAllocator{} {
    OrtAllocator::version = ort::version;
    Alloc = [](OrtAllocator*, std::size_t size) -> void* {
      auto* const block = static_cast<Block*>(std::malloc(sizeof(Block) + size));
      if (block == nullptr) return nullptr;
      block->size = size;
      return block + 1;
    };
    Free = [](OrtAllocator*, void* memory) {
      if (memory != nullptr) std::free(static_cast<Block*>(memory) - 1);
    };
    Info = [](const OrtAllocator*) -> const OrtMemoryInfo* { return nullptr; };
  }

  static std::size_t size_of(const char* memory) { return (reinterpret_cast<const Block*>(memory) - 1)->size; }

 private:
  struct alignas(std::max_align_t) Block {
    std::size_t size;
  };
};

/// A list of strings. Takes a default by address; without one the attribute is required.
inline Texts get_texts(const Attributes& attributes, const char* name, const List<std::string_view>* otherwise) {
  const char* const found = attributes.type_of(name);
  if (found == nullptr || !(equal(found, "strings") || equal(found, "another type"))) {
    return Texts(attributes.missing(name, "strings", otherwise));
  }
  KERNEL_CHECK(get_strings != nullptr, attributes.op(), ": attribute ", name,
               " is a list of strings, which ONNX Runtime gives to a kernel from version 1.25 on");
  struct Given {
    SizedMemory memory;
    char** strings = nullptr;
    std::size_t count = 0;
    ~Given() {
      for (std::size_t i = 0; strings != nullptr && i < count; ++i) memory.Free(&memory, strings[i]);
      memory.Free(&memory, strings);
    }
  } given;
  check_call(get_strings(attributes.info(), name, &given.memory, &given.strings, &given.count));
  Texts texts(given.count);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts.set(i, given.strings[i], SizedMemory::size_of(given.strings[i]) - 1);  // without the NUL at the end
  }
  return texts;
}

}  // namespace opmatrix::ort
