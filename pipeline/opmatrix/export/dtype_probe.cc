// An operator that copies a tensor of any dtype, written as a generated torch.cc is, over classic/torch.h or
// stable/torch.h. `doit probe` thereby measures which dtypes a binding carries in an installed torch.
#include "torch.h"

#include <cstring>
#include <utility>

namespace opmatrix {
namespace {

void copy(torch::Value* stack, bool dense) {
  torch::Input x("copy", "x", stack[0]);
  const auto bytes = static_cast<std::size_t>(torch::to_int(stack[1]));
  x.check_dense(dense);
  torch::Tensor y = x.new_tensor(x.sizes(), x.dtype());
  std::memcpy(y.data<char>(), x.view<char>().data, bytes);
  stack[0] = torch::to_stack(std::move(y));
}

const torch::Registration registration(PROBE_SPACE, "copy", "copy(Tensor x, int bytes) -> Tensor",
                                       torch::call<torch::Value, copy, false>, torch::call<torch::Value, copy, true>,
                                       "doit probe");

}  // namespace
}  // namespace opmatrix
