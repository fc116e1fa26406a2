// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Ceilings of this machine's device memory: the rates that other benchmarks are fractions of.
#pragma once

#include <string>

#include "timing.cuh"

namespace bench {

enum class transfer { memcpy, copy, read, write };

/// The size of a buffer: two gibibytes, or less on a device without room for two such buffers.
inline std::size_t ceiling_buffer_bytes() {
  std::size_t available = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  return whole_blocks(std::min(available / 4, std::size_t{2} << 30));
}

/// The buffers of the ceiling measurements, filled with random words.
struct ceiling_buffers {
  device_memory memory;
  std::size_t bytes = ceiling_buffer_bytes();
  device_array<unsigned char> from{memory, bytes};
  device_array<unsigned char> to{memory, bytes};
  device_array<std::uint32_t> sink{memory, 1};

  ceiling_buffers() {
    stream_write(from.data(), bytes, 0x51ED270BU, memory.stream());
    stream_write(to.data(), bytes, 0x2545F491U, memory.stream());
    memory.wait();
  }

  void run(transfer kind, cudaStream_t stream) {
    switch (kind) {
      case transfer::memcpy:
        check(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
        break;
      case transfer::copy:
        stream_copy(from.data(), to.data(), bytes, stream);
        break;
      case transfer::read:
        stream_read(from.data(), bytes, sink.data(), stream);
        break;
      case transfer::write:
        stream_write(to.data(), bytes, 0x9E3779B9U, stream);
        break;
    }
  }
  /// The traffic of a transfer: bytes read plus bytes written.
  double traffic(transfer kind) const {
    bool const both = kind == transfer::memcpy || kind == transfer::copy;
    return (both ? 2.0 : 1.0) * static_cast<double>(bytes);
  }
};

/// Bytes per second, read plus written, of the faster of the runtime's copy and ours; measured once per process.
inline double copy_ceiling() {
  static double const measured = [] {
    ceiling_buffers buffers;
    double best = 0;
    for (transfer const kind : {transfer::memcpy, transfer::copy}) {
      double const seconds = median_cold_seconds(buffers.memory.stream(), samples_per_repetition,
                                                 [&](cudaStream_t stream) { buffers.run(kind, stream); });
      best = std::max(best, buffers.traffic(kind) / seconds);
    }
    return best;
  }();
  return measured;
}

/// Bytes per second of a kernel that only reads; measured once per process.
inline double read_ceiling() {
  static double const measured = [] {
    ceiling_buffers buffers;
    double const seconds = median_cold_seconds(buffers.memory.stream(), samples_per_repetition,
                                               [&](cudaStream_t stream) { buffers.run(transfer::read, stream); });
    return buffers.traffic(transfer::read) / seconds;
  }();
  return measured;
}

}  // namespace bench
