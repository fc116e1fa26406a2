// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// `compressed_collective_options`, and what compressed collectives return: types that compressed_all_gather,
/// compressed_broadcast and compressed_reduce_scatter share.
///
///     auto options = tessera::compressed_collective_options::for_slow_wires();      // the usual ones are for NVLink
///     options.checksums = true;
///
/// A list is sent in three parts. The *head* goes as it is, so that the wire is not idle while the rest is encoded.
/// The rest is cut into *chunks*, each encoded into a stream of its own. What is sent first of a stream is its *body*,
/// whose size follows from the number of weights alone, so that nobody waits for sizes to send it; one of the bodies
/// brings the sizes of all streams. Of a stream that is longer than its body the *tail* follows in the end.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// How a list is cut and sent. All ranks of a call have the same options.
struct compressed_collective_options {
  /// Bytes of weights that are sent as they are, at most a quarter of the list; 0 with checksums.
  std::int64_t head_bytes = std::int64_t{8} << 20;
  /// Bytes of weights of a chunk, rounded up to 8192 weights; more where there would be more than 32 chunks.
  std::int64_t chunk_bytes = std::int64_t{16} << 20;
  /// Lists of fewer bytes of weights are sent as they are, by the communicator alone; 0 with checksums.
  std::int64_t smallest_bytes = std::int64_t{32} << 20;
  /// Bits of a weight that a body has room for, up to those of the type. 0: the type's bits without its exponent, and
  /// three more, 11 of bf16, which suits trained weights and gradients. Streams that are longer have tails, which cost
  /// two more messages and one copy; what bodies have too much is sent for nothing.
  float body_bits = 0.0F;
  /// Whether every block has a CRC32C, so that any damage is found. Without, damage of signs and mantissas is not.
  bool checksums = false;

  /// Where a GPU sends some 25 GB/s or less, as by PCIe and most networks: a short head is enough, and lists from 2 MiB
  /// on gain.
  [[nodiscard]] static constexpr compressed_collective_options for_slow_wires() {
    compressed_collective_options made;
    made.head_bytes = std::int64_t{1} << 20;
    made.chunk_bytes = std::int64_t{8} << 20;
    made.smallest_bytes = std::int64_t{2} << 20;
    return made;
  }
};

/// What a rank sent, as the host knows it when the call returns.
struct compressed_traffic {
  std::int64_t weights = 0;  ///< bytes of the weights of a message: to each other rank, or from root to the next one
  std::int64_t sent = 0;     ///< bytes that were sent for them: head, bodies and tails
  std::int64_t needed = 0;   ///< bytes of the head and of the streams, which bodies of the right size would have taken
};

}  // namespace v0
}  // namespace tessera
