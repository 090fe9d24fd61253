// The base of generated torch bindings for torch 2.9 and newer; classic/torch.h is the same for older ones.
//
// Uses LibTorch's stable C ABI ("shims") directly, so that one library runs on torch 2.9 and newer. It does not use the
// C++ layer over it (torch/csrc/stable), whose errors show the source of a call and a path of the build machine instead
// of torch's message.
#pragma once

#include <bit>
#include <cstdio>
#include <utility>

#include "dtype.h"
#include "kernel_threads.h"
#include "opmatrix/tensor_view.h"
#include "torch_shims.h"
#include "torch_values.h"

namespace opmatrix::torch {

/// An argument or a result on torch's stack.
using Value = StableIValue;

[[noreturn, gnu::cold]] inline void fail_call(const char* op, const char* wanted) {
  const bool known = torch_exception_get_what_without_backtrace != nullptr;
  throw Error{op, ": torch could not ", wanted, known ? ": " : "",
              known ? torch_exception_get_what_without_backtrace() : ""};
}

/// Throws unless a shim succeeded: with the operation, and with torch's message where torch returns one (2.13).
inline void check_call(AOTITorchError error, const char* op, const char* wanted) {
  if (error != 0) fail_call(op, wanted);
}

/// Owns a reference to a tensor of torch.
class Tensor {
 public:
  explicit Tensor(AtenTensorHandle handle = nullptr) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(other.release()) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  bool defined() const { return handle_ != nullptr; }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

  template <typename T>
  T* data() const {
    void* data = nullptr;
    check_call(aoti_torch_get_data_ptr(handle_, &data), "opmatrix", "give the address of a tensor");
    return static_cast<T*>(data);
  }

 private:
  AtenTensorHandle handle_;
};

/// torch's numbers for what bindings compare. A Registration asks for them, before torch can call a kernel, so that no
/// call does.
struct Codes {
  static constexpr std::uint32_t kMost = 64;

  std::int32_t cpu = -1;
  std::int32_t dense = -1;
  DType dtypes[kMost] = {};                                               // by torch's number
  std::int32_t numbers[static_cast<std::size_t>(DType::other) + 1] = {};  // by dtype, -1 for one that torch lacks

  void ask() noexcept {
    if (cpu >= 0) return;  // another operator of this library did
    const std::pair<DType, std::int32_t> known[] = {
        {DType::float16, aoti_torch_dtype_float16()},
        {DType::bfloat16, aoti_torch_dtype_bfloat16()},
        {DType::float32, aoti_torch_dtype_float32()},
        {DType::float64, aoti_torch_dtype_float64()},
        {DType::float8_e4m3fn, aoti_torch_dtype_float8_e4m3fn()},
        {DType::float8_e5m2, aoti_torch_dtype_float8_e5m2()},
        {DType::float8_e4m3fnuz, aoti_torch_dtype_float8_e4m3fnuz()},
        {DType::float8_e5m2fnuz, aoti_torch_dtype_float8_e5m2fnuz()},
        {DType::int8, aoti_torch_dtype_int8()},
        {DType::int16, aoti_torch_dtype_int16()},
        {DType::int32, aoti_torch_dtype_int32()},
        {DType::int64, aoti_torch_dtype_int64()},
        {DType::uint8, aoti_torch_dtype_uint8()},
        {DType::uint16, aoti_torch_dtype_uint16()},
        {DType::uint32, aoti_torch_dtype_uint32()},
        {DType::uint64, aoti_torch_dtype_uint64()},
        {DType::boolean, aoti_torch_dtype_bool()},
        {DType::complex64, aoti_torch_dtype_complex64()},
        {DType::complex128, aoti_torch_dtype_complex128()},
    };
    for (DType& dtype : dtypes) dtype = DType::other;
    for (std::int32_t& number : numbers) number = -1;
    for (const auto& [dtype, number] : known) {
      numbers[static_cast<std::size_t>(dtype)] = number;
      if (static_cast<std::uint32_t>(number) < kMost) dtypes[number] = dtype;
    }
    dense = aoti_torch_layout_strided();
    cpu = aoti_torch_device_type_cpu();
  }
};
inline constinit Codes codes;

inline DType to_dtype(std::int32_t number) {
  return static_cast<std::uint32_t>(number) < Codes::kMost ? codes.dtypes[number] : DType::other;
}

inline std::int32_t to_code(DType dtype) {
  const std::int32_t number = codes.numbers[static_cast<std::size_t>(dtype)];
  KERNEL_CHECK(number >= 0, "opmatrix: no torch tensor is made as ", name(dtype));
  return number;
}

/// A tensor argument of an operator.
class Input {
 public:
  /// Takes the reference that torch put on the stack, and releases it also when a check throws.
  Input(const char* op, const char* name, StableIValue value)
      : op_(op), name_(name), tensor_(std::bit_cast<AtenTensorHandle>(value)) {}

  /// Throws unless the tensor is defined, on the CPU and dense. Everything below needs that. `known`: it is, if it is
  /// defined.
  void check_dense(bool known) {
    std::int32_t number = 0;
    check_call(aoti_torch_get_dtype(tensor_.get(), &number), op_, "tell the dtype of an argument");
    dtype_ = to_dtype(number);
    if (dtype_ == DType::other) check_defined();  // an undefined tensor has no dtype of ours
    if (!known) check_place();
    std::int64_t* sizes = nullptr;  // checked first: a nested tensor has the strided layout but no sizes
    check_call(aoti_torch_get_sizes(tensor_.get(), &sizes), op_, "tell the sizes of an argument");
    check_call(aoti_torch_get_dim(tensor_.get(), &sizes_.rank), op_, "tell the rank of an argument");
    sizes_.data = sizes;
  }

  DType dtype() const { return dtype_; }
  Sizes sizes() const { return sizes_; }
  const Tensor& tensor() const { return tensor_; }

  bool is_contiguous() const {
    bool contiguous = false;
    check_call(aoti_torch_is_contiguous(tensor_.get(), &contiguous), op_, "look at an argument");
    return contiguous;
  }

  /// The elements in C order: a view of torch's memory, or of a copy that this object owns.
  template <typename T>
  TensorView<const T> view() {
    const bool contiguous = is_contiguous();
    if (!contiguous) copy_ = contiguous_copy();
    const Tensor& source = contiguous ? tensor_ : copy_;
    return {source.data<const T>(), sizes_};
  }

  /// A new contiguous tensor on the same device, which check_dense has found to be the CPU.
  Tensor new_tensor(Sizes sizes, DType dtype) const {
    std::int32_t number = to_code(dtype);
    AtenTensorHandle made = nullptr;
    constexpr std::int64_t kMost = 16;
    std::int64_t strides[kMost];
    std::int64_t count = 1;
    bool usual = sizes.rank <= kMost;
    for (std::int64_t axis = sizes.rank; usual && axis-- > 0;) {
      strides[axis] = count;
      usual = sizes[axis] >= 0 && !__builtin_mul_overflow(count, sizes[axis] > 0 ? sizes[axis] : 1, &count);
    }
    // The first one allocates on the CPU without torch's dispatcher. Of wrong sizes the second one gives the message.
    const AOTITorchError error =
        usual ? aoti_torch_empty_strided(sizes.rank, sizes.data, strides, number, codes.cpu, 0, &made)
              : aoti_torch_aten_new_empty(tensor_.get(), sizes.data, sizes.rank, &number, nullptr, nullptr, 0, nullptr,
                                          &made);
    check_call(error, op_, "allocate an output");
    return Tensor(made);
  }

 private:
  void check_place() const {
    std::int32_t device = 0;
    check_call(aoti_torch_get_device_type(tensor_.get(), &device), op_, "tell the device of an argument");
    KERNEL_CHECK(device == codes.cpu, op_, ": ", name_, " must be on the CPU, got a tensor on ",
                 device == aoti_torch_device_type_cuda()   ? "CUDA"
                 : device == aoti_torch_device_type_meta() ? "the meta device"
                                                           : "another device");
    std::int32_t layout = 0;
    check_call(aoti_torch_get_layout(tensor_.get(), &layout), op_, "tell the layout of an argument");
    KERNEL_CHECK(layout == codes.dense, op_, ": ", name_,
                 " must be a dense tensor, got a sparse or otherwise packed one");
  }

  void check_defined() const {
    bool defined = false;
    check_call(aoti_torch_is_defined(tensor_.get(), &defined), op_, "look at an argument");
    KERNEL_CHECK(defined, op_, ": ", name_, " must be a tensor, got an undefined one");
  }

  Tensor contiguous_copy() const {
    Tensor copy = new_tensor(sizes_, dtype_);  // never empty_like: that keeps the strides
    check_call(aoti_torch_copy_(copy.get(), tensor_.get(), 0), op_, "copy an argument that is not contiguous");
    return copy;
  }

  const char* op_;
  const char* name_;
  Tensor tensor_;
  Tensor copy_;
  DType dtype_ = DType::other;
  Sizes sizes_;
};

inline double to_double(StableIValue value) {
  return std::bit_cast<double>(value);
}
inline std::int64_t to_int(StableIValue value) {
  return std::bit_cast<std::int64_t>(value);
}
inline bool to_bool(StableIValue value) {
  return (value & 0xff) != 0;  // torch writes the one byte of a bool
}
inline StableIValue to_stack(Tensor&& tensor) {
  return std::bit_cast<StableIValue>(tensor.release());
}

/// torch's threads: none before 2.10.
class TorchThreads final : public Threads {
 public:
  void run(std::int64_t begin, std::int64_t end, std::int64_t grain, Work work, void* context) override {
    if (torch_parallel_for == nullptr) return work(context, begin, end);
    struct Call {
      Work work;
      void* context;
    } call{work, context};
    const auto run_part = [](std::int64_t from, std::int64_t to, void* given) {
      const auto& [part, shared] = *static_cast<Call*>(given);
      part(shared, from, to);
    };
    check_call(torch_parallel_for(begin, end, grain, run_part, &call), "opmatrix", "run a kernel on its threads");
  }
};

/// An operator of torch, for as long as the library is loaded.
///
/// An exception in a constructor that the loader runs would end the process. So a failure is stored for
/// opmatrix_error(), and printed for programs that load the library without calling that.
class Registration {
 public:
  using Kernel = void (*)(Value* stack, std::uint64_t arguments, std::uint64_t results);

  /// `schema` is without the namespace. `source` appears in torch's messages. `kernel` takes tensors of every kind;
  /// `dense` those that torch has found to be dense and on the CPU.
  Registration(const char* space, const char* name, const char* schema, Kernel kernel, Kernel dense, const char* source,
               Since since = Since::torch_2_9) noexcept {
    try {
      KERNEL_CHECK(aoti_torch_aten_new_empty != nullptr, name, ": needs torch 2.9 or newer");  // the newest function
      codes.ask();
      KERNEL_CHECK(since == Since::torch_2_9 || torch_library_impl != nullptr, name,
                   ": needs torch 2.10 or newer, for its lists and strings");
      check_call(aoti_torch_library_init_fragment(space, source, 0, &definition_), name, "open its namespace");
      check_call(aoti_torch_library_def(definition_, schema), name, kDefine);
      // For every device and layout, so that the binding's own checks reject unsupported ones with a clear message.
      implement(any_, space, name, "CompositeExplicitAutograd", kernel, source, since);
      // torch uses this one where it finds nothing but dense tensors on the CPU; four shims would ask for it again.
      implement(cpu_, space, name, "CPU", dense, source, since);
    } catch (const Error& error) {
      registration_error = error;
      std::fprintf(stderr, "opmatrix: %s::%s\n", space, error.what());
    }
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  ~Registration() {
    for (TorchLibraryHandle library : {cpu_, any_, definition_}) {
      if (library != nullptr) aoti_torch_delete_library_object(library);
    }
  }

 private:
  static void implement(TorchLibraryHandle& library, const char* space, const char* name, const char* key,
                        Kernel kernel, const char* source, Since since) {
    check_call(aoti_torch_library_init_impl(space, key, source, 0, &library), name, "open its namespace");
    constexpr std::uint64_t kBuiltFor = 0x020A'0000'0000'0000;  // 2.10: how torch passes lists and strings
    check_call(since == Since::torch_2_9 ? aoti_torch_library_impl(library, name, kernel)
                                         : torch_library_impl(library, name, kernel, kBuiltFor),
               name, "take its kernel");
  }

  TorchLibraryHandle definition_ = nullptr;
  TorchLibraryHandle any_ = nullptr;
  TorchLibraryHandle cpu_ = nullptr;
};

}  // namespace opmatrix::torch
