// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// The options of a parameter_store, and the bytes that it takes.
///
///     parameter_store_options const options{.scratch_slots = 3, .slack = 0.05};
#pragma once

#include <cstdint>

namespace tessera {
inline namespace v0 {

/// The options of a store; memory follows from them.
struct parameter_store_options {
  /// Parameters that can be decoded at a time, prefetched ones included.
  int scratch_slots = 2;
  /// Room for streams to grow before they overflow, as a part of their size; headroom adds bytes to it.
  double slack = 0.02;
  std::int64_t headroom = 1024;  ///< room of each stream to grow, in bytes
  /// Size of the overflow arena in largest parts of parameters, decoded.
  int overflow_tensors = 1;
  /// Weights of a block of the streams.
  int block = 8192;
  /// Weights that are encoded at a time, a multiple of 8192: larger parameters have a stream for each part. An update
  /// encodes parameters of several parts twice.
  std::int64_t part = std::int64_t{1} << 26;
  /// Whether parameters will be updated. If not, streams have no room to grow, and memory is for decoding alone.
  bool updates = true;
};

/// The bytes that a store has allocated, by use.
struct parameter_store_bytes {
  std::int64_t streams = 0;    ///< the weights, coded, in a slot for each parameter
  std::int64_t scratch = 0;    ///< decoded parameters
  std::int64_t staging = 0;    ///< the stream being encoded, and its size
  std::int64_t overflow = 0;   ///< blocks of streams that have outgrown their slots
  std::int64_t workspace = 0;  ///< workspace of encoding and decoding

  /// The sum of all of these.
  [[nodiscard]] std::int64_t total() const { return streams + scratch + staging + overflow + workspace; }
};

}  // namespace v0
}  // namespace tessera
