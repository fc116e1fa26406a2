// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Stores and loads streams of tensors too small to gain from coding: the header, then the uncoded values. One group
/// for one tensor.
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/config.hpp>
#include <tessera/core/status.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/program/weights/decode.hpp>
#include <tessera/program/weights/encode.hpp>

namespace tessera {
inline namespace v0 {

/// Writes the stream of a tensor that is stored as it is.
template <class T, class Coder = pair_coder>
struct store_weights {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_encoding<T, Coder> encoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    weight_stream_spec const& spec = encoding.spec;
    T* const values = reinterpret_cast<T*>(encoding.stream + sizeof(weight_stream_header));
    for (int lane : group) {
      for (std::int64_t i = lane; i < spec.count; i += lanes) {
        values[i] = encoding.weights[i];
      }
    }
    group.sync();
    std::uint32_t const checksum =
        shared_crc32c(group, reinterpret_cast<std::uint8_t const*>(values), spec.count * std::int64_t{sizeof(T)}, 0);
    for (int lane : group) {
      if (is_first(lane)) {
        weight_stream_header header = spec.header();
        header.total_bytes = static_cast<std::uint64_t>(spec.largest_bytes());
        header.content_checksum = checksum;
        header.header_checksum = checksum_of(header);
        *encoding.header() = header;
        *encoding.stream_bytes = spec.largest_bytes();
      }
    }
  }
};

/// Copies the weights of a stored tensor, or of a range of its blocks, as if it had any.
template <class T, class Coder = pair_coder>
struct load_stored_weights {
  static constexpr int lanes = 32;
  struct scratch_type {};
  weight_decoding<T, Coder> decoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type&) const {
    weight_stream_spec const& spec = decoding.spec;
    std::uint8_t const* const bytes = decoding.stream + sizeof(weight_stream_header);
    per_lane<bool, G> matches;
    for (int lane : group) {
      matches[lane] = lane > 0 || decoding.header_matches();
    }
    status_code code = status_code::bad_header;
    bool sound = all(group, matches);
    if (sound && decoding.verify_checksums) {
      code = status_code::bad_checksum;
      sound =
          shared_crc32c(group, bytes, spec.count * std::int64_t{sizeof(T)}, 0) == decoding.header().content_checksum;
    }
    std::int64_t const first = decoding.first_block * spec.block_weights();
    std::int64_t const count = min(decoding.blocks * spec.block_weights(), spec.count - first);
    T const* const values = reinterpret_cast<T const*>(bytes) + first;
    for (int lane : group) {
      for (std::int64_t i = lane; i < count; i += lanes) {
        decoding.weights[i] = sound ? values[i] : from_bits<T>(0);
      }
      if (is_first(lane) && !sound) {
        group.report(decoding.status, code, 0);
      }
    }
  }
};

}  // namespace v0
}  // namespace tessera
