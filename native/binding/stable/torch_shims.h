// The part of LibTorch's stable C interface that bindings use, as torch 2.9 and newer export it.
//
// Declared here instead of included: torch's own headers for it (torch/csrc/inductor/aoti_torch/c/shim.h and
// .../generated/c_shim_aten.h) bring <iostream> and <complex> along, and would double what the two libraries of an
// operator cost to compile. tests/native compares these lines with the headers of the installed torch.
//
// All are weak, so that the library also loads in a torch without them, where they are null. Registration then reports
// the version that is needed; the loader's own error would name a symbol.
#pragma once

#include <cstddef>
#include <cstdint>

struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque*;
class TorchLibraryOpaque;
using TorchLibraryHandle = TorchLibraryOpaque*;
struct StableListOpaque;
using StableListHandle = StableListOpaque*;
struct StringOpaque;
using StringHandle = StringOpaque*;
using AOTITorchError = std::int32_t;  // 0 is success
using StableIValue = std::uint64_t;   // a tensor's handle, or the bits of a number

extern "C" {

[[gnu::weak]] std::int32_t aoti_torch_device_type_cpu();
[[gnu::weak]] std::int32_t aoti_torch_device_type_cuda();
[[gnu::weak]] std::int32_t aoti_torch_device_type_meta();
[[gnu::weak]] std::int32_t aoti_torch_layout_strided();
[[gnu::weak]] std::int32_t aoti_torch_dtype_float16();
[[gnu::weak]] std::int32_t aoti_torch_dtype_bfloat16();
[[gnu::weak]] std::int32_t aoti_torch_dtype_float32();
[[gnu::weak]] std::int32_t aoti_torch_dtype_float64();
[[gnu::weak]] std::int32_t aoti_torch_dtype_float8_e4m3fn();
[[gnu::weak]] std::int32_t aoti_torch_dtype_float8_e5m2();
[[gnu::weak]] std::int32_t aoti_torch_dtype_float8_e4m3fnuz();
[[gnu::weak]] std::int32_t aoti_torch_dtype_float8_e5m2fnuz();
[[gnu::weak]] std::int32_t aoti_torch_dtype_int8();
[[gnu::weak]] std::int32_t aoti_torch_dtype_int16();
[[gnu::weak]] std::int32_t aoti_torch_dtype_int32();
[[gnu::weak]] std::int32_t aoti_torch_dtype_int64();
[[gnu::weak]] std::int32_t aoti_torch_dtype_uint8();
[[gnu::weak]] std::int32_t aoti_torch_dtype_uint16();
[[gnu::weak]] std::int32_t aoti_torch_dtype_uint32();
[[gnu::weak]] std::int32_t aoti_torch_dtype_uint64();
[[gnu::weak]] std::int32_t aoti_torch_dtype_bool();
[[gnu::weak]] std::int32_t aoti_torch_dtype_complex64();
[[gnu::weak]] std::int32_t aoti_torch_dtype_complex128();

[[gnu::weak]] AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor);
[[gnu::weak]] AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool* defined);
[[gnu::weak]] AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle tensor, bool* contiguous);
[[gnu::weak]] AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, std::int32_t* device_type);
[[gnu::weak]] AOTITorchError aoti_torch_get_layout(AtenTensorHandle tensor, std::int32_t* layout);
[[gnu::weak]] AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, std::int32_t* dtype);
[[gnu::weak]] AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, std::int64_t* dim);
[[gnu::weak]] AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, std::int64_t** sizes);
[[gnu::weak]] AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, std::int64_t** strides);
[[gnu::weak]] AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data);
[[gnu::weak]] AOTITorchError aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle source,
                                              std::int32_t non_blocking);
[[gnu::weak]] AOTITorchError aoti_torch_aten_new_empty(AtenTensorHandle self, const std::int64_t* size,
                                                       std::int64_t rank, std::int32_t* dtype, std::int32_t* layout,
                                                       std::int32_t* device, std::int32_t device_index,
                                                       std::int32_t* pin_memory, AtenTensorHandle* made);

[[gnu::weak]] AOTITorchError aoti_torch_empty_strided(std::int64_t rank, const std::int64_t* sizes,
                                                      const std::int64_t* strides, std::int32_t dtype,
                                                      std::int32_t device_type, std::int32_t device_index,
                                                      AtenTensorHandle* made);

[[gnu::weak]] AOTITorchError aoti_torch_library_init_fragment(const char* space, const char* file, std::uint32_t line,
                                                              TorchLibraryHandle* made);
[[gnu::weak]] AOTITorchError aoti_torch_library_init_impl(const char* space, const char* key, const char* file,
                                                          std::uint32_t line, TorchLibraryHandle* made);
[[gnu::weak]] AOTITorchError aoti_torch_library_def(TorchLibraryHandle library, const char* schema);
[[gnu::weak]] AOTITorchError aoti_torch_library_impl(TorchLibraryHandle library, const char* name,
                                                     void (*kernel)(StableIValue* stack, std::uint64_t arguments,
                                                                    std::uint64_t results));
[[gnu::weak]] AOTITorchError aoti_torch_delete_library_object(TorchLibraryHandle library);

// Newer than 2.9: a caller tests first whether the function is there.
// Their names are listed in pipeline/opmatrix/toolchain/torch_shims/newer.txt.
[[gnu::weak]] AOTITorchError torch_parallel_for(std::int64_t begin, std::int64_t end, std::int64_t grain,
                                                void (*work)(std::int64_t begin, std::int64_t end, void* context),
                                                void* context);  // 2.10
[[gnu::weak]] AOTITorchError torch_library_impl(TorchLibraryHandle library, const char* name,
                                                void (*kernel)(StableIValue* stack, std::uint64_t arguments,
                                                               std::uint64_t results),
                                                std::uint64_t version);                                          // 2.10
[[gnu::weak]] AOTITorchError torch_new_list_reserve_size(std::size_t size, StableListHandle* made);              // 2.10
[[gnu::weak]] AOTITorchError torch_list_push_back(StableListHandle list, StableIValue item);                     // 2.10
[[gnu::weak]] AOTITorchError torch_list_size(StableListHandle list, std::size_t* size);                          // 2.10
[[gnu::weak]] AOTITorchError torch_list_get_item(StableListHandle list, std::size_t index, StableIValue* item);  // 2.10
[[gnu::weak]] AOTITorchError torch_delete_list(StableListHandle list);                                           // 2.10
[[gnu::weak]] AOTITorchError torch_string_length(StringHandle text, std::size_t* length);                        // 2.10
[[gnu::weak]] AOTITorchError torch_string_c_str(StringHandle text, const char** data);                           // 2.10
[[gnu::weak]] AOTITorchError torch_delete_string(StringHandle text);                                             // 2.10
[[gnu::weak]] AOTITorchError torch_delete_stable_ivalue(StableIValue* value);                                    // 2.13
[[gnu::weak]] const char* torch_exception_get_what_without_backtrace();                                          // 2.13

}  // extern "C"
