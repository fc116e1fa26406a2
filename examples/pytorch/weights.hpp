// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// NeuZip for tensors. tensors.hpp describes a Device.
#pragma once

#include <tessera/neuzip.hpp>

#include "backend.hpp"
#include "tensors.hpp"

namespace tessera_torch {

template <class Device>
class weights_on final : public weights_backend {
 public:
  torch::Tensor compress(torch::Tensor const& weights) override {
    return with_type("compress", weights, [&]<class T>(T) {
      using codec = tessera::neuzip_of<T>;
      auto const& exec = Device::executor(weights.device());
      auto const spec = codec::spec(weights.numel());
      auto const plan = codec::plan_encode(exec, spec);
      auto space = scratch(exec, plan);
      torch::Tensor const room = bytes_on(weights.device(), codec::largest_bytes(spec));
      torch::Tensor const size = torch::zeros({1}, weights.options().dtype(torch::kInt64));
      codec::encode(exec, spec, list_of<T>(weights, weights.device(), {"compress", "weights"}), aligned_bytes(room),
                    writable<std::int64_t>(size), tessera::workspace(plan, space));
      exec.wait();
      auto const stream = aligned_bytes(room);
      auto const used = size.item<std::int64_t>();
      torch::Tensor exact = torch::empty({used}, weights.options().dtype(torch::kUInt8));
      exec.copy(tessera::array_view<std::byte const>(stream.data, used), bytes_in(exact));
      exec.wait();
      return exact;
    });
  }

  void decompress(torch::Tensor const& stream, torch::Tensor const& weights) override {
    with_type("decompress", weights, [&]<class T>(T) {
      using codec = tessera::neuzip_of<T>;
      auto const& exec = Device::executor(weights.device());
      static_cast<void>(list_of<std::uint8_t>(stream, weights.device(), {"decompress", "bytes of the stream"}));
      auto const spec = codec::spec(weights.numel());
      auto const plan = codec::plan_decode(exec, spec);
      auto space = scratch(exec, plan);
      codec::decode(exec, spec, bytes_in(stream), writable<T>(weights), tessera::workspace(plan, space));
      return 0;
    });
  }

 private:
  template <class Use>
  static auto with_type(char const* function, torch::Tensor const& tensor, Use const& use) {
    switch (tensor.scalar_type()) {
      case torch::kBFloat16:
        return use(bfloat16{});
      case torch::kFloat16:
        return use(tessera::float16{});
      default:
        TORCH_CHECK(tensor.scalar_type() == torch::kFloat32, function, ": the weights are of type ",
                    tensor.scalar_type(), " but must be of type BFloat16, Half or Float");
        return use(float{});
    }
  }
};

}  // namespace tessera_torch
