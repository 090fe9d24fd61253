// The floor of torch's stable ABI: fetches pointers and sizes, calls the kernel, checks nothing. calls_bare allocates
// with the shim that goes through the dispatcher, calls_strided with the one that does not. calls_checked also asks
// each tensor for its dtype and whether it is contiguous, as calls_classic.cc does, and no binding that serves both can
// omit.
#include <bit>
#include <cstdlib>

#include "calls.h"
#include "torch_shims.h"

namespace {

using opmatrix::Sizes;
using opmatrix::TensorView;

enum class How { dispatched, strided, checked };

template <How kHow>
struct Held {
  explicit Held(StableIValue value) : handle(std::bit_cast<AtenTensorHandle>(value)) {
    if constexpr (kHow == How::checked) {
      std::int32_t dtype = 0;
      bool contiguous = false;
      aoti_torch_get_dtype(handle, &dtype);
      aoti_torch_is_contiguous(handle, &contiguous);
      if (dtype != aoti_torch_dtype_float32() || !contiguous) std::abort();
    }
    void* at = nullptr;
    std::int64_t* found = nullptr;
    aoti_torch_get_data_ptr(handle, &at);
    aoti_torch_get_sizes(handle, &found);
    aoti_torch_get_dim(handle, &sizes.rank);
    sizes.data = found;
    data = static_cast<float*>(at);
  }
  Held(const Held&) = delete;
  ~Held() { aoti_torch_delete_tensor_object(handle); }

  TensorView<const float> view() const { return {data, sizes}; }

  AtenTensorHandle handle;
  float* data;
  Sizes sizes;
};

struct Made {
  AtenTensorHandle handle = nullptr;
  TensorView<float> view;
};

template <How kHow>
Made make(const Held<kHow>& like) {
  Made made;
  std::int32_t code = aoti_torch_dtype_float32();
  if constexpr (kHow != How::dispatched) {
    std::int64_t* strides = nullptr;
    aoti_torch_get_strides(like.handle, &strides);
    aoti_torch_empty_strided(like.sizes.rank, like.sizes.data, strides, code, aoti_torch_device_type_cpu(), 0,
                             &made.handle);
  } else {
    aoti_torch_aten_new_empty(like.handle, like.sizes.data, like.sizes.rank, &code, nullptr, nullptr, 0, nullptr,
                              &made.handle);
  }
  void* at = nullptr;
  aoti_torch_get_data_ptr(made.handle, &at);
  made.view = {static_cast<float*>(at), like.sizes};
  return made;
}

template <How kHow>
void group_norm(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Held<kHow> x(stack[0]), num_groups(stack[1]), scale(stack[2]), bias(stack[3]);
  const Made y = make<kHow>(x);
  opmatrix::group_norm::compute(x.view(), num_groups.view(), scale.view(), bias.view(),
                                static_cast<float>(std::bit_cast<double>(stack[4])), y.view);
  stack[0] = std::bit_cast<StableIValue>(y.handle);
}

template <How kHow>
void dual_residual(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Held<kHow> x(stack[0]), y(stack[1]);
  const Made a = make<kHow>(x), b = make<kHow>(x);
  opmatrix::dual_residual::compute(x.view(), y.view(), static_cast<float>(std::bit_cast<double>(stack[2])), a.view,
                                   b.view);
  stack[0] = std::bit_cast<StableIValue>(a.handle);
  stack[1] = std::bit_cast<StableIValue>(b.handle);
}

template <How kHow>
int define(const char* space) {
  TorchLibraryHandle definition = nullptr, implementation = nullptr;
  aoti_torch_library_init_fragment(space, "calls_bare.cc", 0, &definition);
  aoti_torch_library_def(definition, kGroupNorm);
  aoti_torch_library_def(definition, kDualResidual);
  aoti_torch_library_init_impl(space, "CompositeExplicitAutograd", "calls_bare.cc", 0, &implementation);
  aoti_torch_library_impl(implementation, "group_norm", group_norm<kHow>);
  aoti_torch_library_impl(implementation, "dual_residual", dual_residual<kHow>);
  return 0;
}

const int defined = define<How::dispatched>("calls_bare") + define<How::strided>("calls_strided") +
                    define<How::checked>("calls_checked");

}  // namespace
