// The base of generated torch bindings over torch's C++ headers, for a torch without a stable ABI, or whose stable ABI
// does not support a declaration. A library fits the one version of torch that it is compiled for.
//
// stable/torch.h has the same names, so that one generated torch.cc is compiled with either. These headers of torch
// take 4 s to compile; torch/extension.h takes 18.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>
#include <torch/version.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "dtype.h"
#include "kernel_threads.h"
#include "opmatrix/tensor_view.h"
#include "torch_values.h"

namespace opmatrix::torch {

/// An argument or a result on torch's stack.
using Value = c10::IValue;

/// Calls torch. Its exceptions become an Error with the operation and torch's message.
template <typename F>
auto ask(const char* op, const char* wanted, const F& f) {
  try {
    return f();
  } catch (const c10::Error& error) {
    throw Error{op, ": torch could not ", wanted, ": ", error.what_without_backtrace()};
  }
}

inline constexpr std::pair<at::ScalarType, DType> kTypes[] = {
    {at::kHalf, DType::float16},
    {at::kBFloat16, DType::bfloat16},
    {at::kFloat, DType::float32},
    {at::kDouble, DType::float64},
    {at::kChar, DType::int8},
    {at::kShort, DType::int16},
    {at::kInt, DType::int32},
    {at::kLong, DType::int64},
    {at::kByte, DType::uint8},
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    {at::kUInt16, DType::uint16},
    {at::kUInt32, DType::uint32},
    {at::kUInt64, DType::uint64},
#endif
    {at::kBool, DType::boolean},
    {at::kComplexFloat, DType::complex64},
    {at::kComplexDouble, DType::complex128},
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
    {at::kFloat8_e4m3fn, DType::float8_e4m3fn},
    {at::kFloat8_e5m2, DType::float8_e5m2},
#endif
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 2)
    {at::kFloat8_e4m3fnuz, DType::float8_e4m3fnuz},
    {at::kFloat8_e5m2fnuz, DType::float8_e5m2fnuz},
#endif
};

inline DType to_dtype(at::ScalarType type) {
  for (const auto& [known, dtype] : kTypes) {
    if (known == type) return dtype;
  }
  return DType::other;
}

inline at::ScalarType to_type(DType dtype) {
  for (const auto& [type, known] : kTypes) {
    if (known == dtype) return type;
  }
  throw Error{"opmatrix: this torch makes no tensor as ", name(dtype)};
}

/// A tensor of torch.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  bool defined() const { return tensor_.defined(); }
  at::Tensor release() { return std::move(tensor_); }

  template <typename T>
  T* data() const {
    return static_cast<T*>(tensor_.data_ptr());
  }

 private:
  at::Tensor tensor_;
};

/// A tensor argument of an operator.
class Input {
 public:
  /// Takes the tensor, of an argument on torch's stack too.
  Input(const char* op, const char* name, Value&& value) : op_(op), name_(name), tensor_(std::move(value).toTensor()) {}
  Input(const char* op, const char* name, Value& value) : Input(op, name, std::move(value)) {}

  /// Throws unless the tensor is defined, on the CPU and dense. Everything below needs that.
  void check_dense(bool /*known*/) {  // to look at a tensor costs next to nothing here
    KERNEL_CHECK(tensor_.defined(), op_, ": ", name_, " must be a tensor, got an undefined one");
    const at::Device device = tensor_.device();
    KERNEL_CHECK(device.is_cpu(), op_, ": ", name_, " must be on the CPU, got a tensor on ",
                 device.is_cuda()   ? "CUDA"
                 : device.is_meta() ? "the meta device"
                                    : "another device");
    KERNEL_CHECK(tensor_.layout() == at::kStrided, op_, ": ", name_,
                 " must be a dense tensor, got a sparse or otherwise packed one");
    // Checked in this order: a nested tensor has the strided layout but no sizes.
    sizes_ = ask(op_, "tell the sizes of an argument", [&] {
      const at::IntArrayRef sizes = tensor_.sizes();
      return Sizes{sizes.data(), static_cast<std::int64_t>(sizes.size())};
    });
    dtype_ = to_dtype(tensor_.scalar_type());
  }

  DType dtype() const { return dtype_; }
  Sizes sizes() const { return sizes_; }
  const at::Tensor& tensor() const { return tensor_; }
  bool is_contiguous() const { return tensor_.is_contiguous(); }

  /// The elements in C order: a view of torch's memory, or of a copy that this object owns.
  template <typename T>
  TensorView<const T> view() {
    if (!is_contiguous()) {
      copy_ = ask(op_, "copy an argument that is not contiguous", [&] { return tensor_.contiguous(); });
    }
    const at::Tensor& source = copy_.defined() ? copy_ : tensor_;
    return {static_cast<const T*>(source.data_ptr()), sizes_};
  }

  /// A new contiguous tensor on the same device.
  Tensor new_tensor(Sizes sizes, DType dtype) const {
    const at::IntArrayRef shape(sizes.data, static_cast<std::size_t>(sizes.rank));
    const auto options = at::TensorOptions().dtype(to_type(dtype)).device(tensor_.device());
    return ask(op_, "allocate an output", [&] { return Tensor(at::empty(shape, options)); });
  }

 private:
  const char* op_;
  const char* name_;
  at::Tensor tensor_;
  at::Tensor copy_;
  DType dtype_ = DType::other;
  Sizes sizes_;
};

inline double to_double(Value value) {
  return value.toDouble();
}
inline std::int64_t to_int(Value value) {
  return value.toInt();
}
inline bool to_bool(Value value) {
  return value.toBool();
}
inline Value to_stack(Tensor&& tensor) {
  return tensor.release();
}

/// torch's threads: those of its OpenMP, which the build links; a second OpenMP would have its own threads.
class TorchThreads final : public Threads {
 public:
  void run(std::int64_t begin, std::int64_t end, std::int64_t grain, Work work, void* context) override {
    at::parallel_for(begin, end, grain, [&](std::int64_t from, std::int64_t to) { work(context, from, to); });
  }
};

/// An operator of torch, for as long as the library is loaded.
///
/// An exception in a constructor that the loader runs would end the process. So a failure is stored for
/// opmatrix_error(), and printed for programs that load the library without calling that.
class Registration {
 public:
  using Kernel = void (*)(Value* stack, std::uint64_t arguments, std::uint64_t results);

  /// `schema` is without the namespace. `source` appears in torch's messages. `kernel` takes tensors of every kind.
  Registration(const char* space, const char* name, const char* schema, Kernel kernel, Kernel /*dense*/,
               const char* source, Since = Since::torch_2_9) noexcept {
    using Library = ::torch::Library;
    try {
      auto boxed = std::make_unique<Boxed>(kernel);
      ask(name, kDefine, [&] {
        // Its optional is torch's before 2.1 and the standard library's after; {} is an empty one of either.
        definition_.reset(new Library(Library::FRAGMENT, space, {}, source, 0));
        c10::FunctionSchema parsed = ::torch::schema(schema);
        boxed->arguments = parsed.arguments().size();
        boxed->results = parsed.returns().size();
        definition_->def(std::move(parsed));
      });
      ask(name, "take its kernel", [&] {
        // For every device and layout, so that the binding's own checks reject unsupported ones with a clear message.
        constexpr auto key = c10::DispatchKey::CompositeExplicitAutograd;
        implementation_ = std::make_unique<Library>(Library::IMPL, space, key, source, 0);
        implementation_->impl(name, ::torch::CppFunction::makeFromBoxedFunctor(std::move(boxed)));
      });
    } catch (const std::exception& error) {
      registration_error = Error{error.what()};
      std::fprintf(stderr, "opmatrix: %s::%s\n", space, registration_error.what());
    }
  }

 private:
  /// Called by torch: takes the arguments from the stack and puts the results there.
  class Boxed final : public c10::OperatorKernel {
   public:
    explicit Boxed(Kernel kernel) : kernel_(kernel) {}

    void operator()(const c10::OperatorHandle& /*op*/, c10::DispatchKeySet /*keys*/, ::torch::jit::Stack* stack) {
      const std::size_t below = stack->size() - arguments;
      if (results > arguments) stack->resize(below + results);
      kernel_(stack->data() + below, arguments, results);
      stack->resize(below + results);
    }

    std::size_t arguments = 0;
    std::size_t results = 0;

   private:
    Kernel kernel_;
  };

  std::unique_ptr<::torch::Library> definition_;
  std::unique_ptr<::torch::Library> implementation_;
};

}  // namespace opmatrix::torch
