// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Tensors as tessera's views, and PyTorch's memory as tessera's. Templates for a kind of device take its `Device`,
/// which gives the executor for the current stream of a device:
///
///     struct device {
///       using executor_type = tessera::cpu;
///       static executor_type const& executor(torch::Device);
///       static torch::Tensor host_bytes(std::int64_t);       // memory of the host that the executor can read
///     };
#pragma once

#include <cstddef>
#include <cstdint>
#include <torch/types.h>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/buffer.hpp>
#include <tessera/exec/workspace.hpp>
#include <tessera/view/array_view.hpp>
#include <tessera/view/view.hpp>

namespace tessera_torch {

using tessera::bfloat16;

template <class T>
constexpr torch::ScalarType type_of = torch::kFloat32;
template <>
constexpr inline torch::ScalarType type_of<bfloat16> = torch::kBFloat16;
template <>
constexpr inline torch::ScalarType type_of<tessera::float16> = torch::kFloat16;
template <>
constexpr inline torch::ScalarType type_of<std::uint8_t> = torch::kUInt8;
template <>
constexpr inline torch::ScalarType type_of<std::int32_t> = torch::kInt32;
template <>
constexpr inline torch::ScalarType type_of<std::int64_t> = torch::kInt64;

template <class T>
T* data_of(torch::Tensor const& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

/// The view of a tensor that was made here, to write, with its strides.
template <class T, int Rank>
tessera::view<T, Rank> writable(torch::Tensor const& tensor) {
  std::int64_t extents[Rank];
  std::int64_t strides[Rank];
  for (int i = 0; i < Rank; ++i) {
    extents[i] = tensor.size(i);
    strides[i] = tensor.stride(i);
  }
  return tessera::view<T, Rank>(data_of<T>(tensor), extents, strides);
}
/// All elements of a contiguous tensor that was made here, to write.
template <class T>
tessera::array_view<T> writable(torch::Tensor const& tensor) {
  return {data_of<T>(tensor), tensor.numel()};
}

/// What an error calls a user's tensor: the function, and the argument in the plural.
struct argument {
  char const* function;
  char const* name;
};

/// Checks a user's tensor. The call runs on `device`.
inline void check_tensor(torch::Tensor const& tensor, torch::ScalarType type, torch::Device device,
                         argument const& which) {
  TORCH_CHECK(tensor.device() == device, which.function, ": the ", which.name, " are on ", tensor.device(),
              " but the call runs on ", device);
  TORCH_CHECK(tensor.scalar_type() == type, which.function, ": the ", which.name, " are of type ", tensor.scalar_type(),
              " but must be of type ", type);
}

/// The view of a user's tensor to read, with its strides.
template <class T, int Rank>
tessera::view<T const, Rank> view_of(torch::Tensor const& tensor, torch::Device device, argument const& which) {
  check_tensor(tensor, type_of<T>, device, which);
  TORCH_CHECK(tensor.dim() == Rank, which.function, ": the ", which.name, " have ", tensor.dim(),
              " dimensions but must have ", Rank);
  return writable<T, Rank>(tensor);
}
/// All elements of a user's contiguous tensor, to read.
template <class T>
tessera::array_view<T const> list_of(torch::Tensor const& tensor, torch::Device device, argument const& which) {
  check_tensor(tensor, type_of<T>, device, which);
  TORCH_CHECK(tensor.is_contiguous(), which.function, ": the ", which.name, " have strides ", tensor.strides(),
              " but must be contiguous");
  return writable<T>(tensor);
}

/// The bytes of a contiguous tensor.
inline tessera::array_view<std::byte> bytes_in(torch::Tensor const& tensor) {
  return {data_of<std::byte>(tensor), static_cast<std::int64_t>(tensor.nbytes())};
}

/// PyTorch's memory, with room to begin at a multiple of a workspace's alignment.
inline torch::Tensor bytes_on(torch::Device device, std::int64_t bytes) {
  return torch::empty({bytes + tessera::workspace_plan::alignment},
                      torch::TensorOptions().dtype(torch::kUInt8).device(device));
}
inline tessera::array_view<std::byte> aligned_bytes(torch::Tensor const& tensor) {
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

/// A copy of a list of numbers from the host on a device.
template <class T>
torch::Tensor copied(std::vector<T> const& list, torch::Device device) {
  auto const bytes = static_cast<std::int64_t>(list.size() * sizeof(T));
  return torch::from_blob(const_cast<T*>(list.data()), {bytes}, torch::TensorOptions().dtype(torch::kUInt8))
      .to(device, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace tessera_torch
