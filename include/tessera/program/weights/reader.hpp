// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Reads weights of a compressed stream inside of other programs, block by block: open_weights checks the stream once,
/// then any group decodes any block with a weight_reader.
///
///     exec.run(open_weights<T>{decoding}, 1);                       // fills decoding.table
///     ...
///     reader.decode(group, block, scratch.weights, scratch.reader); // in a program of 32 lanes
///
/// What is corrupt is reported to decoding.status and reads as zeros.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/status.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/block.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/program/weights/decode.hpp>

namespace tessera {
inline namespace v0 {

/// Checks header and codebook and makes the decode table, or checks the checksum of a stream whose values are stored
/// raw. One group.
template <class T, class Coder = pair_coder>
struct open_weights {
  static constexpr int lanes = 32;
  using scratch_type = typename read_codebook<T, Coder>::scratch_type;
  weight_decoding<T, Coder> decoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t which, scratch_type& scratch) const {
    if (decoding.spec.coder != weight_coder::stored) {
      read_codebook<T, Coder>{decoding}(group, which, scratch);
      return;
    }
    per_lane<bool, G> matches;
    for (int lane : group) {
      matches[lane] = lane > 0 || decoding.header_matches();
    }
    status_code code = status_code::bad_header;
    bool sound = all(group, matches);
    if (sound) {
      code = status_code::bad_checksum;
      sound = shared_crc32c(group, decoding.stream + sizeof(weight_stream_header),
                            decoding.spec.count * std::int64_t{sizeof(T)}, 0) == decoding.header().content_checksum;
    }
    for (int lane : group) {
      if (is_first(lane)) {
        decoding.table->is_sound = sound ? 1 : 0;
        if (!sound) {
          group.report(decoding.status, code, 0);
        }
      }
    }
  }
};

/// The blocks of an opened stream.
template <class T, class Mantissa, class Steps = weight_block_steps<T, Mantissa>>
struct weight_reader {
  using value_type = T;
  using scratch_type = typename Steps::scratch_type;
  static constexpr int lanes = 32;
  static constexpr int largest_block = 1 << weight_stream_spec::largest_log2_block;  ///< the most weights of a block

  weight_decoding<T, typename Steps::coder_type> decoding;

  /// The number of weights of the tensor.
  TESSERA_FN constexpr std::int64_t count() const { return decoding.spec.count; }
  /// The number of weights of every block but the last.
  TESSERA_FN constexpr std::int64_t block_weights() const { return decoding.spec.block_weights(); }

  /// Writes the weights of a block, which all lanes may read when it returns. Returns false if the block is corrupt.
  template <Group G>
  TESSERA_FN bool decode(G const& group, std::int64_t block, T* weights, scratch_type& scratch) const {
    static_assert(G::size == lanes, "tessera: weights are decoded by groups of 32 lanes");
    bool sound = false;
    if (decoding.spec.coder == weight_coder::stored) {
      sound = copy_stored(group, block, weights);
    } else {
      sound = decode_weights<T, Mantissa, Steps>{decoding}.decode(group, block, weights, scratch);
    }
    group.sync();
    return sound;
  }

 private:
  template <Group G>
  TESSERA_FN bool copy_stored(G const& group, std::int64_t block, T* weights) const {
    bool const sound = decoding.table->is_sound != 0;
    std::int64_t const first = block * block_weights();
    T const* const values = reinterpret_cast<T const*>(decoding.stream + sizeof(weight_stream_header)) + first;
    for (int lane : group) {
      for (std::int64_t i = lane; i < decoding.spec.weights_in(block); i += lanes) {
        weights[i] = sound ? values[i] : from_bits<T>(0);
      }
    }
    return sound;
  }
};

}  // namespace v0
}  // namespace tessera
