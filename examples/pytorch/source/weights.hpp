// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip for tensors. tensors.hpp describes a Device.
#pragma once

#include <cstdint>

#include <tessera/neuzip.hpp>

#include "tensors.hpp"

namespace tessera_torch {

/// Calls `use` with an element of the type of weights: bfloat16, float16 or float.
template <class Use>
auto with_weight_type(char const* function, Tensor const& weights, Use const& use) {
  ScalarType const type = weights.scalar_type();
  switch (type) {
    case ScalarType::BFloat16:
      return use(bfloat16{});
    case ScalarType::Half:
      return use(tessera::float16{});
    default:
      tessera::check<tessera::value_error>(type == ScalarType::Float, function, ": the weights are of type ",
                                           torch::headeronly::toString(type),
                                           " but must be of type BFloat16, Half or Float");
      return use(float{});
  }
}

/// The stream of bytes of contiguous weights, on their device. Waits.
template <class Device>
Tensor compress(Tensor weights) {
  return with_weight_type("compress", weights, [&]<class T>(T) {
    using codec = tessera::neuzip_of<T>;
    torch::stable::Device const device = device_of<Device>(weights, {"compress", "weights"});
    auto const& exec = Device::executor(device);
    auto const spec = codec::spec(weights.numel());
    auto const plan = codec::plan_encode(exec, spec);
    auto space = scratch(exec, plan);
    Tensor const room = bytes_on(device, codec::largest_bytes(spec));
    tessera::buffer<std::int64_t> size(exec, 1);
    codec::encode(exec, spec, list_of<T>(weights, device, {"compress", "weights"}), aligned_bytes(room), size,
                  tessera::workspace(plan, space));
    std::int64_t used = 0;
    exec.copy(tessera::array_view<std::int64_t const>(size), tessera::array_view<std::int64_t>(&used, 1));
    exec.wait();
    Tensor exact = empty_on(device, {used}, ScalarType::Byte);
    exec.copy(tessera::array_view<std::byte const>(aligned_bytes(room).data, used), bytes_in(exact));
    exec.wait();
    return exact;
  });
}

/// Writes the weights of a stream into a contiguous tensor of their shape and type.
template <class Device>
void decompress_into(Tensor stream, Tensor weights) {
  with_weight_type("decompress", weights, [&]<class T>(T) {
    using codec = tessera::neuzip_of<T>;
    torch::stable::Device const device = device_of<Device>(weights, {"decompress", "weights"});
    auto const& exec = Device::executor(device);
    static_cast<void>(list_of<std::uint8_t>(stream, device, {"decompress", "bytes of the stream"}));
    static_cast<void>(list_of<T>(weights, device, {"decompress", "weights"}));
    auto const spec = codec::spec(weights.numel());
    auto const plan = codec::plan_decode(exec, spec);
    auto space = scratch(exec, plan);
    codec::decode(exec, spec, bytes_in(stream), writable<T>(weights), tessera::workspace(plan, space));
    return 0;
  });
}

}  // namespace tessera_torch
