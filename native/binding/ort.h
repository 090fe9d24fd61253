// The base of generated ONNX Runtime bindings. Uses only the C API, version 16 and newer.
//
// A library requests the API version of the running ONNX Runtime, or the newest that these headers have, so that it
// runs on 1.16 and newer. Features of version 17 (shapes, threads) are used only if `version` has them.
#pragma once

#include "items.h"
#include "kernel_threads.h"
#include "opmatrix/tensor_view.h"
#include "ort_api.h"
#include "ort_shapes.h"

namespace opmatrix::ort {

/// The attributes of a node.
class Attributes {
 public:
  Attributes(const char* op, const OrtKernelInfo* info) : op_(op), info_(info) {}

  /// Throws for a node of a schema newer than `newest`: ONNX Runtime has no versions of custom ops, and would
  /// ignore an attribute that this library does not have.
  void check_schema(std::int64_t newest) const {
    std::int64_t found = 0;
    if (!succeeds(api->KernelInfoGetAttribute_int64(info_, "schema_version", &found))) return;
    KERNEL_CHECK(found <= newest, op_, ": the node is of version ", found, ", and this library has none after ", newest,
                 "; take a newer library");
  }

  /// Throws for an attribute `other` of the node, where the operator has it as `name`, which may have a default. The C
  /// API lists no attributes, so that further unknown ones are not found here.
  void check_absent(const char* other, const char* name) const {
    KERNEL_CHECK(type_of(other) == nullptr, op_, ": unknown attribute ", other, "; in ONNX its name is ", name);
  }

  /// A copy of a tensor, which the caller releases. Throws if the node has none, or an attribute of another type.
  OrtValue* get_tensor(const char* name) const {
    OrtAllocator* allocator = nullptr;
    OrtValue* found = nullptr;
    check_call(api->GetAllocatorWithDefaultOptions(&allocator));
    if (!succeeds(api->KernelInfoGetAttribute_tensor(info_, name, allocator, &found))) {
      return missing<OrtValue*>(name, "tensor", nullptr);
    }
    return found;
  }

  const char* op() const { return op_; }
  const OrtKernelInfo* info() const { return info_; }

  /// Whether the node has an attribute, of any type.
  bool has(const char* name) const { return type_of(name) != nullptr; }

  // Each takes a default by address; without one the attribute is required.

  float get_float(const char* name, const float* otherwise) const {
    float value = 0;
    if (succeeds(api->KernelInfoGetAttribute_float(info_, name, &value))) return value;
    return missing(name, "float", otherwise);
  }

  std::int64_t get_int(const char* name, const std::int64_t* otherwise) const {
    std::int64_t value = 0;
    if (succeeds(api->KernelInfoGetAttribute_int64(info_, name, &value))) return value;
    return missing(name, "int", otherwise);
  }

  /// ONNX has no bool attribute: it is an int, 0 or 1.
  bool get_bool(const char* name, const bool* otherwise) const {
    const std::int64_t whole = otherwise != nullptr && *otherwise ? 1 : 0;
    const std::int64_t value = get_int(name, otherwise == nullptr ? nullptr : &whole);
    KERNEL_CHECK(value == 0 || value == 1, op_, ": attribute ", name, " must be 0 or 1, got ", value);
    return value == 1;
  }

  /// The string with its terminating NUL.
  Items<char> get_string(const char* name, const char* otherwise) const {
    std::size_t size = 0;
    if (!succeeds(api->KernelInfoGetAttribute_string(info_, name, nullptr, &size))) {
      const char* text = missing(name, "string", otherwise == nullptr ? nullptr : &otherwise);
      Items<char> copy(__builtin_strlen(text) + 1);
      __builtin_memcpy(copy.data(), text, copy.size() - 1);
      return copy;
    }
    Items<char> text(size);
    check_call(api->KernelInfoGetAttribute_string(info_, name, text.data(), &size));
    KERNEL_CHECK(__builtin_strlen(text.data()) + 1 == size, op_, ": attribute ", name, " must hold no NUL");
    return text;
  }

  Items<float> get_floats(const char* name, const List<float>* otherwise) const {
    return get_list<float>(api->KernelInfoGetAttributeArray_float, name, "floats", otherwise);
  }

  Items<std::int64_t> get_ints(const char* name, const List<std::int64_t>* otherwise) const {
    return get_list<std::int64_t>(api->KernelInfoGetAttributeArray_int64, name, "ints", otherwise);
  }

  Items<bool> get_bools(const char* name, const List<bool>* otherwise) const {
    Items<std::int64_t> whole(otherwise == nullptr ? 0 : static_cast<std::size_t>(otherwise->size()));
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = otherwise->data[i] ? 1 : 0;
    const List<std::int64_t> list = whole.list();
    const Items<std::int64_t> found = get_ints(name, otherwise == nullptr ? nullptr : &list);
    Items<bool> values(found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::int64_t value = found.begin()[i];
      KERNEL_CHECK(value == 0 || value == 1, op_, ": attribute ", name, " must hold 0 and 1 alone, got ", value);
      values[i] = value == 1;
    }
    return values;
  }

  /// Whether the node names this output; of an optional one it may leave the name empty, or have none.
  bool has_output(std::size_t index) const {
    std::size_t count = 0;
    check_call(api->KernelInfo_GetOutputCount(info_, &count));
    if (index >= count) return false;
    std::size_t size = 0;  // with the NUL
    check_call(api->KernelInfo_GetOutputName(info_, index, nullptr, &size));
    return size > 1;
  }

  /// An attribute of another type reads as absent, so try every type before taking the default.
  template <typename T>
  T missing(const char* name, const char* wanted, const T* otherwise) const {
    const char* found = type_of(name);
    KERNEL_CHECK(found == nullptr, op_, ": attribute ", name, " must be of type ", wanted, ", got ", found);
    KERNEL_CHECK(otherwise != nullptr, op_, ": attribute ", name, " is missing; it must be of type ", wanted);
    return *otherwise;
  }

  /// The type of an attribute, or null: "another type" is also an empty list, and any list of strings before 1.25.
  const char* type_of(const char* name) const {
    float real = 0;
    std::int64_t whole = 0;
    std::size_t size = 0;
    if (succeeds(api->KernelInfoGetAttribute_float(info_, name, &real))) return "float";
    if (succeeds(api->KernelInfoGetAttribute_int64(info_, name, &whole))) return "int";
    if (succeeds(api->KernelInfoGetAttribute_string(info_, name, nullptr, &size))) return "string";
    // For a list of another type ONNX Runtime returns an empty list; for an absent attribute it fails.
    if (!succeeds(api->KernelInfoGetAttributeArray_float(info_, name, nullptr, &size))) return nullptr;
    if (size > 0) return "floats";
    if (succeeds(api->KernelInfoGetAttributeArray_int64(info_, name, nullptr, &size)) && size > 0) return "ints";
    OrtAllocator* allocator = nullptr;
    OrtValue* tensor = nullptr;
    check_call(api->GetAllocatorWithDefaultOptions(&allocator));
    if (get_strings != nullptr && succeeds(get_strings(info_, name, allocator, nullptr, &size)) && size > 0) {
      return "strings";
    }
    if (!succeeds(api->KernelInfoGetAttribute_tensor(info_, name, allocator, &tensor))) return "another type";
    api->ReleaseValue(tensor);
    return "tensor";
  }

 private:
  template <typename T, typename Getter>
  Items<T> get_list(Getter getter, const char* name, const char* wanted, const List<T>* otherwise) const {
    std::size_t size = 0;
    const bool there = succeeds(getter(info_, name, nullptr, &size));
    // Size 0 is an empty list or an attribute of another type; for some types the C API returns the same for both.
    const char* found = there && size > 0 ? wanted : type_of(name);
    if (found == nullptr || !(equal(found, wanted) || equal(found, "another type"))) {
      const List<T> list = missing(name, wanted, otherwise);
      Items<T> copy(static_cast<std::size_t>(list.size()));
      for (std::size_t i = 0; i < copy.size(); ++i) copy[i] = list.data[i];
      return copy;
    }
    Items<T> values(size);
    if (size > 0) check_call(getter(info_, name, values.data(), &size));
    return values;
  }

  const char* op_;
  const OrtKernelInfo* info_;
};

/// A tensor as ONNX Runtime stores it, with its sizes; null is an optional input that is absent.
class Value {
 public:
  explicit Value(const OrtValue* value) : value_(value) {
    if (value == nullptr) return;
    std::size_t rank = 0;
    if (get_shape != nullptr) {
      ONNXTensorElementDataType type;
      check_call(get_shape(value, &type, &sizes_.data, &rank));
    } else {
      rank = copy_sizes();
      sizes_.data = copy_;
    }
    KERNEL_CHECK(rank <= kMost, "opmatrix: a tensor has more than ", kMost, " dimensions");
    sizes_.rank = static_cast<std::int64_t>(rank);
  }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  bool given() const { return value_ != nullptr; }
  Sizes sizes() const { return sizes_; }
  /// None or one.
  List<Sizes> optional_sizes() const { return {&sizes_, given() ? 1 : 0}; }

  template <typename T>
  TensorView<const T> view() const {
    void* data = nullptr;  // the C API has no getter for const data before 1.23
    check_call(api->GetTensorMutableData(const_cast<OrtValue*>(value_), &data));
    return {static_cast<const T*>(data), sizes()};
  }

  template <typename T>
  OptionalView<const T> optional_view() const {
    return given() ? OptionalView<const T>{true, view<T>()} : OptionalView<const T>{};
  }

 private:
  static constexpr std::int64_t kMost = 64;

  /// Returns the rank, and copies the sizes unless there are too many: ONNX Runtime before 1.24 lends none.
  std::size_t copy_sizes() {
    struct Info {
      OrtTensorTypeAndShapeInfo* info = nullptr;
      ~Info() { api->ReleaseTensorTypeAndShapeInfo(info); }
    } found;
    std::size_t rank = 0;
    check_call(api->GetTensorTypeAndShape(value_, &found.info));
    check_call(api->GetDimensionsCount(found.info, &rank));
    if (rank <= kMost) check_call(api->GetDimensions(found.info, copy_, rank));
    return rank;
  }

  const OrtValue* value_;
  Sizes sizes_;
  std::int64_t copy_[kMost];  // not cleared: that took 9% of a smallest call
};

/// One run of a node; while it lives, the kernel has the session's threads.
class Context final : public Threads {
 public:
  explicit Context(OrtKernelContext* context) : context_(context), use_(version >= 17 ? this : nullptr) {}

  const OrtValue* input(std::size_t index) const {
    const OrtValue* value = nullptr;
    check_call(api->KernelContext_GetInput(context_, index, &value));
    KERNEL_CHECK(value != nullptr, "opmatrix: input ", static_cast<std::int64_t>(index), " is required and absent");
    return value;
  }

  /// An input that may be absent, in the middle or at the end: then null.
  const OrtValue* optional_input(std::size_t index) const {
    const OrtValue* value = nullptr;
    if (index < count_inputs()) check_call(api->KernelContext_GetInput(context_, index, &value));
    return value;
  }

  std::size_t count_inputs() const {
    std::size_t count = 0;
    check_call(api->KernelContext_GetInputCount(context_, &count));
    return count;
  }

  OrtValue* output(std::size_t index, Sizes sizes) const {
    OrtValue* value = nullptr;
    check_call(api->KernelContext_GetOutput(context_, index, sizes.data, static_cast<std::size_t>(sizes.rank), &value));
    return value;
  }

  template <typename T>
  TensorView<T> output(std::size_t index, Sizes sizes) const {
    void* data = nullptr;
    check_call(api->GetTensorMutableData(output(index, sizes), &data));
    return {static_cast<T*>(data), sizes};
  }

  void run(std::int64_t begin, std::int64_t end, std::int64_t grain, Work work, void* context) override {
    struct Call {
      std::int64_t begin, end, grain;
      Work work;
      void* context;
    } call{begin, end, grain, work, context};
    const auto run_part = [](void* given, std::size_t index) {
      const auto& c = *static_cast<Call*>(given);
      const std::int64_t from = c.begin + static_cast<std::int64_t>(index) * c.grain;
      c.work(c.context, from, c.end - from > c.grain ? from + c.grain : c.end);
    };
    const auto parts = static_cast<std::size_t>((end - begin - 1) / grain + 1);
    check_call(api->KernelContext_ParallelFor(context_, run_part, parts, 0, &call));  // 0: ORT chooses the batches
  }

 private:
  OrtKernelContext* context_;
  UseThreads use_;
};

/// The declaration of one input or output of a custom op.
struct Port {
  constexpr Port(DType given, OrtCustomOpInputOutputCharacteristic count = INPUT_OUTPUT_REQUIRED)
      : dtype(given), characteristic(count) {}

  DType dtype;
  OrtCustomOpInputOutputCharacteristic characteristic;
};

/// A custom op of ONNX Runtime for one choice of dtypes, made of a Kernel with
///   static constexpr const char* kOp, kOpType; constexpr int kSinceVersion, kNewestSchema;
///   constexpr Port kInputs[], kOutputs[];
///   explicit Kernel(const Attributes&); void compute(Context&) const; static void infer_shapes(ShapeContext&).
template <typename Kernel>
struct CustomOp : OrtCustomOp {
  CustomOp() : OrtCustomOp{} {
    OrtCustomOp::version = ort::version;
    GetName = [](const OrtCustomOp*) { return Kernel::kOpType; };
    GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };  // the CPU
    GetInputTypeCount = [](const OrtCustomOp*) { return count_of(Kernel::kInputs); };
    GetOutputTypeCount = [](const OrtCustomOp*) { return count_of(Kernel::kOutputs); };
    GetInputType = [](const OrtCustomOp*, std::size_t i) { return element_type(Kernel::kInputs[i].dtype); };
    GetOutputType = [](const OrtCustomOp*, std::size_t i) { return element_type(Kernel::kOutputs[i].dtype); };
    GetInputCharacteristic = [](const OrtCustomOp*, std::size_t i) { return Kernel::kInputs[i].characteristic; };
    GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t i) { return Kernel::kOutputs[i].characteristic; };
    GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return OrtMemTypeDefault; };
    GetVariadicInputMinArity = [](const OrtCustomOp*) { return 0; };
    GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
    // That of inputs: 1.16 compares one with the other, and takes the choices of dtypes for different operators.
    GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 0; };
    GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
    CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
      return to_status([&] {
        const Attributes attributes(Kernel::kOp, info);
        attributes.check_schema(Kernel::kNewestSchema);
        *kernel = new Kernel(attributes);
      });
    };
    KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
      return to_status([&] {
        Context run(context);
        static_cast<const Kernel*>(kernel)->compute(run);
      });
    };
    KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
    InferOutputShapeFn = [](const OrtCustomOp*, OrtShapeInferContext* context) {  // called from version 17 on
      return to_status([&] {
        ShapeContext shapes(context);
        Kernel::infer_shapes(shapes);
      });
    };
    if (may_lack_inner_inputs() && !infers_past_absent_inputs) InferOutputShapeFn = nullptr;
    // One custom op for all schemas of an operator: of several with one name, 1.16 to 1.31 use only the first one's
    // schema. Attributes and inputs that a node of an older schema lacks have their defaults.
    GetStartVersion = [](const OrtCustomOp*) { return Kernel::kSinceVersion; };
    GetEndVersion = [](const OrtCustomOp*) { return INT32_MAX; };
  }

  static constexpr bool may_lack_inner_inputs() {
    for (std::size_t i = 0; i + 1 < count_of(Kernel::kInputs); ++i)
      if (Kernel::kInputs[i].characteristic == INPUT_OUTPUT_OPTIONAL) return true;
    return false;
  }
};

/// A custom op of which some outputs may have the memory of an input, by their indices:
///   static constexpr int kInPlaceInputs[], kInPlaceOutputs[] of the Kernel, of equal length.
/// ONNX Runtime calls them from version 18 on.
template <typename Kernel>
struct InPlaceOp : CustomOp<Kernel> {
  InPlaceOp() {
    this->GetMayInplace = [](int** inputs, int** outputs) {
      static_assert(count_of(Kernel::kInPlaceInputs) == count_of(Kernel::kInPlaceOutputs));
      *inputs = const_cast<int*>(Kernel::kInPlaceInputs);  // which ONNX Runtime reads, and gives to ReleaseMayInplace
      *outputs = const_cast<int*>(Kernel::kInPlaceOutputs);
      return count_of(Kernel::kInPlaceInputs);
    };
    this->ReleaseMayInplace = [](int*, int*) {};
  }
};

/// The custom ops of one operator, one per choice of dtypes, and the domain that they belong to.
struct Operator {
  const char* domain;
  const OrtCustomOp* const* ops;
  std::size_t count;
};

}  // namespace opmatrix::ort
