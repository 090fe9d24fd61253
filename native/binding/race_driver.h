// A program that calls a kernel from several threads at once, for ThreadSanitizer. It needs no framework and no Python.
//
// It reads calls from a file that opmatrix.ort_checks.race_file writes, and runs all of them
//   1. in several threads, before anything else: so a table that the first call fills is filled by several;
//   2. alone, which gives the outputs that 3 and 4 must give as well, to the last bit;
//   3. in several threads, each of which begins with another call: so a shared buffer contains what another call wrote;
//   4. one after the other, with threads that the kernel's own parallel_for uses.
// Outputs that may have the memory of an input have it, but in 2.
#pragma once

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "items.h"
#include "kernel_threads.h"
#include "opmatrix/tensor_view.h"
#include "texts.h"

namespace opmatrix::race_driver {

inline constexpr int kThreads = 4;
inline constexpr int kDiffers = 3;  // the exit code; ThreadSanitizer has its own

/// Where a thread is, for the message of a report.
inline thread_local const char* call_now = "no call";
inline const char* phase_now = "";
inline bool is_alone = false;

[[noreturn]] inline void end(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::fflush(stderr);
  std::_Exit(kDiffers);  // other threads may still run
}

/// One tensor of a call.
struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<unsigned char> bytes;
  std::vector<std::string> strings;  // instead of bytes

  Sizes sizes() const { return {shape.data(), static_cast<std::int64_t>(shape.size())}; }

  template <typename T>
  TensorView<const T> view() const {
    if constexpr (std::is_same_v<T, std::string>) {
      return {strings.data(), sizes()};
    } else {
      return {reinterpret_cast<const T*>(bytes.data()), sizes()};
    }
  }
};

/// The tensors of an input: one, none of an optional input, or any number of a variadic one.
struct Input {
  std::vector<Tensor> tensors;

  template <typename T>
  TensorView<const T> view() const {
    return tensors.at(0).view<T>();
  }

  template <typename T>
  OptionalView<const T> optional_view() const {
    return tensors.empty() ? OptionalView<const T>{} : OptionalView<const T>{true, view<T>()};
  }

  template <typename T>
  Items<TensorView<const T>> views() const {
    Items<TensorView<const T>> found(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) found[i] = tensors[i].view<T>();
    return found;
  }
};

/// One attribute, which may be a tensor: the bytes of its value or values. A string ends with a NUL. One that is
/// optional has a byte before these if it is there, else none.
struct Attribute {
  std::vector<unsigned char> bytes;
  std::vector<std::int64_t> shape;  // of a tensor

  bool given() const { return !bytes.empty(); }
  /// An optional one that is there, without that byte.
  Attribute inner() const { return {{bytes.begin() + 1, bytes.end()}, {}}; }

  template <typename T>
  T value() const {
    T found;
    std::memcpy(&found, bytes.data(), sizeof found);
    return found;
  }

  /// Of strings: the number of bytes of each ahead of them.
  Texts texts() const {
    std::vector<std::string_view> found;
    for (std::size_t at = 0; at < bytes.size();) {
      std::int64_t length;
      std::memcpy(&length, bytes.data() + at, sizeof length);
      at += sizeof length;
      found.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at, static_cast<std::size_t>(length));
      at += static_cast<std::size_t>(length);
    }
    return Texts(List<std::string_view>{found.data(), static_cast<std::int64_t>(found.size())});
  }

  const char* text() const { return reinterpret_cast<const char*>(bytes.data()); }

  template <typename T>
  TensorView<const T> view() const {
    return {reinterpret_cast<const T*>(bytes.data()), {shape.data(), static_cast<std::int64_t>(shape.size())}};
  }

  template <typename T>
  Items<T> items() const {
    Items<T> found(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(found.data(), bytes.data(), bytes.size());
    return found;
  }
};

/// A stored call. `choice` is the index of the kernel's dtypes; `shapes` are those of the outputs.
struct Call {
  std::string name;
  std::int64_t choice = 0;
  std::vector<Input> inputs;
  std::vector<Attribute> attributes;
  std::vector<std::vector<std::int64_t>> shapes;
};

template <typename T>
std::string element(const unsigned char* bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes + index * sizeof(T), sizeof value);
  char text[40];
  if constexpr (std::is_integral_v<T>) {
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(value));
  } else {
    std::snprintf(text, sizeof text, "%.17g", static_cast<double>(value));
  }
  return text;
}

/// One output of one run.
class Output {
 public:
  template <typename T>
  TensorView<T> allocate(const std::vector<std::int64_t>& shape) {
    tensor_.shape = shape;
    const auto count = static_cast<std::size_t>(numel(tensor_.sizes()));
    if constexpr (std::is_same_v<T, std::string>) {
      tensor_.strings.assign(count, "");
      return {tensor_.strings.data(), tensor_.sizes()};
    } else {
      size_ = sizeof(T);
      print_ = element<T>;
      tensor_.bytes.assign(count * sizeof(T), 0);
      return {reinterpret_cast<T*>(tensor_.bytes.data()), tensor_.sizes()};
    }
  }

  /// The output is one that the kernel makes.
  template <typename T>
  NewTensor<T> tensor(bool wanted = true) {
    const auto make = [](void* owner, Sizes sizes) -> void* {
      return static_cast<Output*>(owner)->allocate<T>({sizes.begin(), sizes.end()}).data;
    };
    return {make, this, wanted};
  }

  const Tensor& tensor() const { return tensor_; }

  /// The first difference from `alone`, or an empty string.
  std::string difference(const Output& alone) const {
    if (tensor_.shape != alone.tensor_.shape) return "has another shape";
    for (std::size_t i = 0; i < tensor_.strings.size(); ++i) {
      const auto& [now, then] = std::pair(tensor_.strings[i], alone.tensor_.strings[i]);
      if (now != then) return "differs at element " + std::to_string(i) + ": '" + then + "' alone, '" + now + "'";
    }
    const auto& [here, there] = std::pair(tensor_.bytes.data(), alone.tensor_.bytes.data());
    const std::size_t count = tensor_.bytes.size();
    if (count == 0 || std::memcmp(here, there, count) == 0) return "";
    const auto at = static_cast<std::size_t>(std::mismatch(here, here + count, there).first - here) / size_;
    return "differs at element " + std::to_string(at) + ": " + print_(there, at) + " alone, " + print_(here, at);
  }

 private:
  Tensor tensor_;
  std::size_t size_ = 1;
  std::string (*print_)(const unsigned char*, std::size_t) = nullptr;
};

/// The input of a call whose output `made` may have its memory: a copy there, but in the calls alone.
template <typename T>
TensorView<const T> in_place(TensorView<const T> given, TensorView<T> made) {
  if (is_alone || given.numel() == 0) return given;
  std::memcpy(made.data, given.data, static_cast<std::size_t>(given.numel()) * sizeof(T));
  return {made.data, given.sizes};
}

/// The tensors of a variadic output, the last one, which begins at `first`.
template <typename T>
class Variadic {
 public:
  Variadic(std::vector<Output>& outputs, std::size_t first, const std::vector<std::vector<std::int64_t>>& shapes) {
    for (std::size_t i = first; i < shapes.size(); ++i) views_.push_back(outputs.at(i).template allocate<T>(shapes[i]));
  }

  List<TensorView<T>> list() const { return {views_.data(), static_cast<std::int64_t>(views_.size())}; }

 private:
  std::vector<TensorView<T>> views_;
};

/// The outputs of one run, or the message of the kernel that rejects the call.
struct Results {
  explicit Results(std::size_t count) : outputs(count) {}

  std::vector<Output> outputs;
  std::string refusal;
};

/// Threads that the kernel's parallel_for uses, up to kThreads of them.
class OwnThreads final : public Threads {
 public:
  bool used = false;

  void run(std::int64_t begin, std::int64_t end, std::int64_t grain, Work work, void* context) override {
    used = true;
    const std::int64_t parts =
        std::min<std::int64_t>((end - begin - 1) / std::max<std::int64_t>(grain, 1) + 1, kThreads);
    const auto bound = [=](std::int64_t part) {
      return begin + (end - begin) / parts * part + std::min((end - begin) % parts, part);
    };
    const char* const call = call_now;
    std::vector<std::thread> threads;
    for (std::int64_t part = 1; part < parts; ++part) {
      threads.emplace_back([=] {
        call_now = call;
        work(context, bound(part), bound(part + 1));
      });
    }
    work(context, bound(0), bound(1));
    for (auto& thread : threads) thread.join();
  }
};

/// Reads what opmatrix.ort_checks.race_file wrote: numbers of 8 bytes, and bytes after their count.
class File {
 public:
  explicit File(const char* path) : stream_(path, std::ios::binary) {}

  std::vector<Call> calls() {
    std::vector<Call> found(count());
    for (Call& call : found) {
      const auto name = bytes();
      call.name.assign(name.begin(), name.end());
      call.choice = number();
      call.inputs.resize(count());
      for (Input& input : call.inputs) {
        input.tensors.resize(count());
        for (Tensor& tensor : input.tensors) {
          tensor.shape = shape();
          tensor.bytes = bytes();
          tensor.strings.resize(count());
          for (std::string& text : tensor.strings) {
            const auto read = bytes();
            text.assign(read.begin(), read.end());
          }
        }
      }
      call.attributes.resize(count());
      for (Attribute& attribute : call.attributes) {
        attribute.shape = shape();
        attribute.bytes = bytes();
      }
      call.shapes.resize(count());
      for (auto& sizes : call.shapes) sizes = shape();
    }
    if (number() != kEnd) end("the file of calls is damaged");
    return found;
  }

 private:
  static constexpr std::int64_t kEnd = 0x6f706d61;

  std::int64_t number() {
    std::int64_t value = 0;
    if (!stream_.read(reinterpret_cast<char*>(&value), sizeof value)) end("the file of calls is missing or cut");
    return value;
  }

  std::size_t count() { return static_cast<std::size_t>(number()); }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> sizes(count());
    for (auto& size : sizes) size = number();
    return sizes;
  }

  std::vector<unsigned char> bytes() {
    std::vector<unsigned char> found(count());
    const auto size = static_cast<std::streamsize>(found.size());
    if (size > 0 && !stream_.read(reinterpret_cast<char*>(found.data()), size)) end("the file of calls is cut");
    return found;
  }

  std::ifstream stream_;
};

/// The kernel of an operator: `call` runs it, for any of its dtypes.
struct Kernel {
  const char* name;
  std::vector<const char*> outputs;
  void (*call)(const Call&, std::vector<Output>&);

  Results run(const Call& call_given) const {
    Results results(std::max(outputs.size(), call_given.shapes.size()));  // more where the last one is variadic
    call_now = call_given.name.c_str();
    try {
      call(call_given, results.outputs);
    } catch (const std::exception& error) {
      results.refusal = error.what();
    } catch (...) {
      results.refusal = "it threw something that is no std::exception";
    }
    return results;
  }

  /// Ends the program unless a run gives what it gave alone.
  void compare(const Call& of, const Results& found, const Results& alone) const {
    const std::string where = std::string(name) + "-" + of.name + ": ";
    if (found.refusal != alone.refusal) {
      const auto shown = [](const Results& r) { return r.refusal.empty() ? "no error" : "'" + r.refusal + "'"; };
      end(where + shown(alone) + " alone, " + shown(found) + " " + phase_now);
    }
    for (std::size_t i = 0; found.refusal.empty() && i < found.outputs.size(); ++i) {
      const std::string difference = found.outputs[i].difference(alone.outputs[i]);
      const std::string output = outputs[std::min(i, outputs.size() - 1)];
      if (!difference.empty()) end(where + "output '" + output + "' " + difference + " " + phase_now);
    }
  }
};

/// Runs all calls in kThreads threads at once; thread n begins with call n * `apart`. With `alone` compares each run.
inline void crowd(const Kernel& kernel, const std::vector<Call>& calls, std::size_t apart,
                  const std::vector<Results>* alone) {
  std::barrier start(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < kThreads; ++n) {
    threads.emplace_back([&, n] {
      start.arrive_and_wait();
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const std::size_t at = (i + n * apart) % calls.size();
        const Results found = kernel.run(calls[at]);
        if (alone != nullptr) kernel.compare(calls[at], found, (*alone)[at]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

/// The main function of the program, whose argument is the file of calls.
inline int main(const Kernel& kernel, int count, char** arguments) {
  if (count != 2) end("usage: races FILE");
  const std::vector<Call> calls = File(arguments[1]).calls();
  phase_now = "in 4 threads, before any other call";
  crowd(kernel, calls, 0, nullptr);
  phase_now = "alone";
  is_alone = true;
  std::vector<Results> alone;
  for (const Call& call : calls) {
    alone.push_back(kernel.run(call));
    const std::string& refusal = alone.back().refusal;
    if (!refusal.empty())
      end(std::string(kernel.name) + "-" + call.name + ": the kernel rejects what the reference computes: '" + refusal +
          "'");
  }
  is_alone = false;
  phase_now = "while 4 threads call the kernel";
  crowd(kernel, calls, 1, &alone);
  phase_now = "with the threads of parallel_for";
  std::size_t split = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    OwnThreads threads;
    const UseThreads use(&threads);
    kernel.compare(calls[i], kernel.run(calls[i]), alone[i]);
    split += threads.used;
  }
  std::printf("%zu calls in %d threads, %zu of them split by parallel_for\n", calls.size(), kThreads, split);
  return 0;
}

}  // namespace opmatrix::race_driver

/// ThreadSanitizer calls it after it has printed a report.
extern "C" [[gnu::used, gnu::visibility("default")]] inline void __tsan_on_report(const void*) {
  std::fprintf(stderr, "Call: %s, %s\n", opmatrix::race_driver::call_now, opmatrix::race_driver::phase_now);
}
