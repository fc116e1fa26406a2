// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Streams of bf16 weights that the host has made, decoded on the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/neuzip.hpp>

#include "algorithm/weights/device_weights.cuh"

namespace tessera_test {

using bf16_array = weight_array<tessera::bfloat16>;

/// A stream that the host made, copied to an allocation of exactly its size on the device.
struct stream_on_device {
  tessera::weight_stream_spec spec;
  std::vector<std::byte> bytes;
  device_bytes memory;

  stream_on_device(bf16_array const& weights, tessera::weight_stream_options options)
      : spec(tessera::neuzip::spec(weights.count(), options)),
        bytes(encode_on_host<tessera::neuzip>(weights, options)),
        memory(static_cast<std::int64_t>(bytes.size()), 0, 0) {
    upload();
  }
  void upload() { memory.upload(bytes.data(), memory.size()); }
  void flip(std::int64_t position) {
    bytes[static_cast<std::size_t>(position)] ^= std::byte{0x10};
    upload();
  }
};

/// The first block that decoding reports, or -1.
inline std::int64_t failure_of(tessera::cuda const& exec, stream_on_device const& stream, std::int64_t first,
                               std::int64_t blocks, device_weights<tessera::bfloat16>& into) {
  tessera::neuzip::decode(exec, stream.spec, stream.memory.view(), first, blocks, into.view(),
                          device_space(tessera::neuzip::plan_decode(exec, stream.spec)));
  try {
    exec.wait();
  } catch (tessera::corrupt_data const& problem) {
    return problem.position();
  }
  return -1;
}

}  // namespace tessera_test
