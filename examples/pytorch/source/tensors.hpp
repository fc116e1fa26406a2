// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tensors as tessera's views, and PyTorch's memory as tessera's. Templates for a kind of device take its `Device`,
/// which gives the executor for the current stream of a device:
///
///     struct device {
///       using executor_type = tessera::cpu;
///       static constexpr char const* name = "cpu";
///       static constexpr bool is_host = true;                // whether the host may read its memory at any time
///       static bool has(torch::stable::Device);
///       static executor_type const& executor(torch::stable::Device);
///       static Tensor host_bytes(std::int64_t);              // memory of the host that the executor can read
///     };
///
/// All that is used of PyTorch is its stable interface, so that one build serves its later versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/check.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera_torch {

using tessera::bfloat16;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <class T>
constexpr ScalarType type_of = ScalarType::Float;
template <>
constexpr inline ScalarType type_of<bfloat16> = ScalarType::BFloat16;
template <>
constexpr inline ScalarType type_of<tessera::float16> = ScalarType::Half;
template <>
constexpr inline ScalarType type_of<std::uint8_t> = ScalarType::Byte;
template <>
constexpr inline ScalarType type_of<std::int32_t> = ScalarType::Int;
template <>
constexpr inline ScalarType type_of<std::int64_t> = ScalarType::Long;

/// "cpu", "cuda:1" or what else a device is called.
inline std::string name_of(torch::stable::Device const& device) {
  using torch::headeronly::DeviceType;
  std::string const number = device.has_index() ? ":" + std::to_string(device.index()) : "";
  switch (device.type()) {
    case DeviceType::CPU:
      return "cpu";
    case DeviceType::CUDA:
      return "cuda" + number;
    case DeviceType::Meta:
      return "meta";
    default:
      return "device type " + std::to_string(static_cast<int>(device.type())) + number;
  }
}

template <class T>
T* data_of(Tensor const& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

/// The view of a tensor that was made here, to write, with its strides.
template <class T, int Rank>
tessera::view<T, Rank> writable(Tensor const& tensor) {
  std::int64_t extents[Rank];
  std::int64_t strides[Rank];
  auto const sizes = tensor.sizes();
  auto const steps = tensor.strides();
  for (int i = 0; i < Rank; ++i) {
    extents[i] = sizes[static_cast<std::size_t>(i)];
    strides[i] = steps[static_cast<std::size_t>(i)];
  }
  return tessera::view<T, Rank>(data_of<T>(tensor), extents, strides);
}
/// All elements of a contiguous tensor that was made here, to write.
template <class T>
tessera::array_view<T> writable(Tensor const& tensor) {
  return {data_of<T>(tensor), tensor.numel()};
}

/// What an error calls a user's tensor: the function, and the argument in the plural.
struct argument {
  char const* function;
  char const* name;
};

inline void check_type(Tensor const& tensor, ScalarType type, argument const& which) {
  tessera::check<tessera::value_error>(tensor.scalar_type() == type, which.function, ": the ", which.name,
                                       " are of type ", torch::headeronly::toString(tensor.scalar_type()),
                                       " but must be of type ", torch::headeronly::toString(type));
}

/// The device of a user's tensor, which the call runs on.
template <class Device>
torch::stable::Device device_of(Tensor const& tensor, argument const& which) {
  torch::stable::Device const device = tensor.device();
  tessera::check<tessera::value_error>(Device::has(device), which.function, ": the ", which.name, " are on ",
                                       name_of(device), " but the call runs on ", Device::name);
  return device;
}

/// Checks where a user's tensor is. The call runs on `device`.
inline void check_place(Tensor const& tensor, torch::stable::Device const& device, argument const& which) {
  if (!(tensor.device() == device)) {
    throw tessera::value_error(tessera::join(which.function, ": the ", which.name, " are on ", name_of(tensor.device()),
                                             " but the call runs on ", name_of(device)));
  }
}
inline void check_dimensions(Tensor const& tensor, std::int64_t dimensions, argument const& which) {
  tessera::check<tessera::shape_error>(tensor.dim() == dimensions, which.function, ": the ", which.name, " have ",
                                       tensor.dim(), " dimensions but must have ", dimensions);
}
/// Checks a user's tensor. The call runs on `device`.
inline void check_tensor(Tensor const& tensor, ScalarType type, torch::stable::Device const& device,
                         argument const& which) {
  check_place(tensor, device, which);
  check_type(tensor, type, which);
}

/// The view of a user's tensor to read, with its strides.
template <class T, int Rank>
tessera::view<T const, Rank> view_of(Tensor const& tensor, torch::stable::Device const& device, argument const& which) {
  check_tensor(tensor, type_of<T>, device, which);
  check_dimensions(tensor, Rank, which);
  return writable<T, Rank>(tensor);
}
/// All elements of a user's contiguous tensor, to read.
template <class T>
tessera::array_view<T const> list_of(Tensor const& tensor, torch::stable::Device const& device, argument const& which) {
  check_tensor(tensor, type_of<T>, device, which);
  if (!tensor.is_contiguous()) {
    std::string strides;
    for (std::int64_t const stride : tensor.strides()) {
      strides += (strides.empty() ? "" : ", ") + std::to_string(stride);
    }
    throw tessera::shape_error(
        tessera::join(which.function, ": the ", which.name, " have strides ", strides, " but must be contiguous"));
  }
  return writable<T>(tensor);
}

/// PyTorch's number of a ScalarType or a DeviceType, as its C functions take it.
template <class T>
std::int32_t shim_number(T const& value) {
  return torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(value));
}

/// An uninitialized contiguous tensor.
inline Tensor empty_on(torch::stable::Device const& device, std::vector<std::int64_t> const& sizes, ScalarType type) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * (sizes[i] > 0 ? sizes[i] : 1);
  }
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(),
                                                  shim_number(type), shim_number(device.type()), device.index(),
                                                  &made));
  return Tensor(made);
}
/// An uninitialized contiguous tensor of another one's sizes, on its device.
template <class T>
Tensor empty_as(Tensor const& other) {
  auto const sizes = other.sizes();
  return empty_on(other.device(), {sizes.begin(), sizes.end()}, type_of<T>);
}

/// The bytes of a contiguous tensor whose elements have `element_bytes` each.
inline tessera::array_view<std::byte> bytes_in(Tensor const& tensor, std::int64_t element_bytes = 1) {
  return {data_of<std::byte>(tensor), tensor.numel() * element_bytes};
}

/// PyTorch's memory, with room to begin at a multiple of a workspace's alignment.
inline Tensor bytes_on(torch::stable::Device const& device, std::int64_t bytes) {
  return empty_on(device, {bytes + tessera::workspace_plan::alignment}, ScalarType::Byte);
}
inline tessera::array_view<std::byte> aligned_bytes(Tensor const& tensor) {
  constexpr std::uintptr_t alignment = tessera::workspace_plan::alignment;
  auto const address = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
  auto const skipped = static_cast<std::int64_t>((alignment - address % alignment) % alignment);
  return {data_of<std::byte>(tensor) + skipped, tensor.numel() - tessera::workspace_plan::alignment};
}

/// Memory for the duration of a call, from the executor's resource: later work on the stream may reuse it.
template <class Executor>
tessera::buffer<std::byte> scratch(Executor const& exec, tessera::workspace_plan const& plan) {
  return tessera::buffer<std::byte>(exec, plan.bytes());
}

/// The bytes of a list of numbers from the host, in a tensor of bytes on a device. Waits where the device is no CPU.
template <class T>
Tensor copied(std::vector<T> const& list, torch::stable::Device const& device) {
  using torch::headeronly::DeviceType;
  auto const bytes = static_cast<std::int64_t>(list.size() * sizeof(T));
  Tensor const made = empty_on({DeviceType::CPU}, {bytes}, ScalarType::Byte);
  std::memcpy(made.data_ptr(), list.data(), list.size() * sizeof(T));
  return device.is_cpu() ? made : torch::stable::to(made, device);
}

}  // namespace tessera_torch
