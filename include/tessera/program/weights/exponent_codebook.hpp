// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// Fits a StreamCoder's model to a histogram of exponents and writes header and codebook: what write_codebook does for
/// pairs of 4-bit codes.
///
///     exec.run(tessera::write_exponent_codebook<tessera::bfloat16, tessera::tans_coder>{encoding}, 1);
#pragma once

#include <cstdint>

#include <tessera/concepts/group.hpp>
#include <tessera/concepts/stream_coder.hpp>
#include <tessera/config.hpp>
#include <tessera/entropy/exponent_split.hpp>
#include <tessera/entropy/weight_stream.hpp>
#include <tessera/program/weights/checksum.hpp>
#include <tessera/program/weights/encode.hpp>

namespace tessera {
inline namespace v0 {

/// Fits the model, makes the table for pushing, and writes header and codebook. One group, of which the first lane does
/// what the coder's functions do.
template <class T, StreamCoder Coder>
struct write_exponent_codebook {
  static constexpr int lanes = 32;
  struct scratch_type {
    typename Coder::model_type model;  ///< the model of the stream
  };
  weight_encoding<T, Coder> encoding;

  template <Group G>
  TESSERA_FN void operator()(G const& group, std::int64_t, scratch_type& scratch) const {
    weight_stream_spec const& spec = encoding.spec;
    std::uint8_t* const codebook = encoding.stream + spec.codebook_offset();
    for (int lane : group) {
      for (std::int64_t i = lane; i < spec.codebook_size(); i += lanes) {
        codebook[i] = 0;
      }
    }
    group.sync();
    for (int lane : group) {
      if (is_first(lane)) {
        Coder::fit_model(encoding.counts, scratch.model);
        Coder::make_encode_table(scratch.model, *encoding.table);
        Coder::store_model(scratch.model, codebook);
      }
    }
    group.sync();
    clear_gaps(group, encoding.stream, weight_section_ends::in(spec));
    std::uint32_t const checksum = shared_crc32c(group, codebook, spec.codebook_size(), 0);
    for (int lane : group) {
      if (is_first(lane)) {
        weight_stream_header header = spec.header();
        header.window_base = static_cast<std::uint8_t>(most_frequent());
        header.content_checksum = checksum;
        *encoding.header() = header;
      }
    }
  }

 private:
  /// The most frequent exponent that can be coded; the lowest of several.
  TESSERA_FN std::uint32_t most_frequent() const {
    std::uint32_t best = 0;
    std::uint64_t largest = 0;
    for (std::uint32_t exponent = 0; exponent <= exponent_split<T>::largest_exponent; ++exponent) {
      bool const can_code = Coder::can_code(*encoding.table, static_cast<typename Coder::symbol_type>(exponent));
      if (can_code && encoding.counts[exponent] > largest) {
        best = exponent;
        largest = encoding.counts[exponent];
      }
    }
    return best;
  }
};

}  // namespace v0
}  // namespace tessera
