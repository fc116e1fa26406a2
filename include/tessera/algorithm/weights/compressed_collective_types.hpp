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
///
/// Four ways to send, of which a user chooses one by options:
///   * The usual options are for NVLink and NCCL as it comes: its programs share the GPU with encoding and decoding.
///   * for_copy_engines() are for NVLink where NCCL sends by copy engines, beside all programs: on a communicator with
///     NCCL_CTA_POLICY_ZERO, of memory that nccl_memory (comm/nccl_memory.cuh) registers.
///   * for_peer_memory() are for compressed_all_gather and compressed_reduce_scatter where GPUs of one host store into
///     each other's memory: encoding itself sends, and there are no bodies and no tails. Of all_gather it is the
///     fastest way for 64 and 256 MiB of two H200; 1 GiB takes 2.5 ms, and 2.3 by copy engines.
///   * for_slow_wires() are for PCIe and networks.
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// How a list is cut and sent. All ranks of a call have the same options.
struct compressed_collective_options {
  /// Bytes of weights that are sent as they are, at most a quarter of the list; 0 with checksums.
  std::int64_t head_bytes = std::int64_t{32} << 20;
  /// Bytes of weights of the first and of the last chunk, at most; at least 8192 weights. Longer ones leave the wire
  /// idle at first, and in the end more to decode.
  std::int64_t chunk_bytes = std::int64_t{32} << 20;
  /// Bytes of weights of the chunks between, at most, unless there would be more than 32 chunks. Each message has a
  /// price, 20 to 30 us over NVLink, so that few long ones are best.
  std::int64_t longest_bytes = std::int64_t{256} << 20;
  /// Lists of fewer bytes of weights are sent as they are, by the communicator alone; 0 with checksums.
  std::int64_t smallest_bytes = std::int64_t{128} << 20;
  /// Bits of a weight that a body has room for, up to those of the type. 0: the type's bits without its exponent, and
  /// three more, 11 of bf16, which suits trained weights and gradients. Streams that are longer have tails, which cost
  /// two more messages and one copy; what bodies have too much is sent for nothing.
  float body_bits = 0.0F;
  /// Whether every block has a CRC32C, so that any damage is found. Without, damage of signs and mantissas is not.
  bool checksums = false;
  /// Whether compressed_all_gather sends its messages to each other rank. Over NVLink that takes less time than the
  /// communicator's all_gather, on which it relies otherwise; over a network it takes as many times the bytes as there
  /// are other ranks on the other side.
  bool sends_to_each = true;
  /// Multiprocessors that encoding and decoding leave to the communicator's programs.
  int spared_multiprocessors = 32;
  /// Whether compressed_all_gather and compressed_reduce_scatter encode streams to where they are needed, in the memory
  /// of the other ranks. The ranks are a PeerCommunicator then, and share the workspace.
  bool stores_to_peers = false;

  /// Where copy engines send over NVLink: no multiprocessor is spared, and lists from 48 MiB on gain.
  [[nodiscard]] static constexpr compressed_collective_options for_copy_engines() {
    compressed_collective_options made;
    made.smallest_bytes = std::int64_t{48} << 20;
    made.sends_to_each = false;
    made.spared_multiprocessors = 0;
    return made;
  }
  /// Where the ranks are a PeerCommunicator whose GPUs reach each other over NVLink. Half of the multiprocessors encode
  /// as fast as streams are stored; the others copy and decode beside that. Lists from 32 MiB on gain.
  [[nodiscard]] static constexpr compressed_collective_options for_peer_memory() {
    compressed_collective_options made;
    made.head_bytes = std::int64_t{8} << 20;
    made.chunk_bytes = std::int64_t{256} << 20;
    made.smallest_bytes = std::int64_t{32} << 20;
    made.spared_multiprocessors = 64;
    made.stores_to_peers = true;
    return made;
  }
  /// Where a GPU sends some 25 GB/s or less, as by PCIe and most networks: a short head is enough, and lists from 2 MiB
  /// on gain.
  [[nodiscard]] static constexpr compressed_collective_options for_slow_wires() {
    compressed_collective_options made;
    made.head_bytes = std::int64_t{1} << 20;
    made.chunk_bytes = std::int64_t{8} << 20;
    made.longest_bytes = std::int64_t{64} << 20;
    made.sends_to_each = false;
    made.spared_multiprocessors = 0;
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
